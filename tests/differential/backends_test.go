package differential

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// backend is an old service that writes down which order it took each request
// for.
type backend struct {
	name string
	soak bool // only the long run has it
	// front has Envoy forward targets and headers as they are to a front controller that
	// merges what it is told, and rules that let lookups' paths be under other methods.
	front bool
	// profile is the one that fits it. Spring 2.7 here ignores case, which only strict covers.
	profile order.Backend
	// run starts it, with a file for its sightings, and returns its address.
	run func(t *testing.T, root, sightings string) (addr string)
}

var backends = []backend{
	{name: "tomcat", profile: order.Tomcat, run: func(t *testing.T, root, file string) string { return runJava(t, root, "tomcat", "spring35", file) }},
	{name: "spring35", profile: order.Spring, run: func(t *testing.T, root, file string) string { return runJava(t, root, "spring35", "spring35", file) }},
	{name: "php", profile: order.PHP, run: func(t *testing.T, root, file string) string { return runPHP(t, root, "php", file) }},
	{name: "spring27", profile: order.Strict, soak: true, run: func(t *testing.T, root, file string) string { return runJava(t, root, "spring27", "spring27", file) }},
	{name: "nginx", profile: order.PHP, soak: true, run: func(t *testing.T, root, file string) string { return runNginx(t, root, "php", file) }},
	{name: "fpm", profile: order.PHP, front: true, run: func(t *testing.T, root, file string) string { return runNginx(t, root, "front", file) }},
	{name: "apache", profile: order.PHP, front: true, run: func(t *testing.T, root, file string) string { return runApache(t, root, "front", file) }},
}

// folder holds the backends' sources, from the root of the checkout.
const folder = "tests/differential/backends"

// runJava starts one of the Java applications with the jars of a pom.xml.
func runJava(t *testing.T, root, name, jars, file string) string {
	java := program(t, "java", "differential")
	source := filepath.Join(root, folder, "java")
	pom, err := os.ReadFile(filepath.Join(source, jars, "pom.xml"))
	bedtest.Check(t, err)
	lib := filepath.Join(root, ".cache", "jars", fmt.Sprintf("%s-%x", jars, sha256.Sum256(pom))[:len(jars)+17])
	if _, err := os.Stat(lib); err != nil {
		bedtest.Check(t, &testbed.MissingError{Program: ".cache/jars/" + filepath.Base(lib), Fetch: "differential"})
	}
	files := []string{filepath.Join(source, name, "Main.java")}
	shared := []string{"Sightings.java", "Templates.java"}
	if name != "tomcat" {
		shared = append(shared, "OrderController.java", "Ready.java", "TemplateHandler.java")
	}
	for _, name := range shared {
		files = append(files, filepath.Join(source, "shared", name))
	}
	classes := compile(t, root, name, lib, files)
	p := start(t, name, nil, nil, java,
		// The cheap compiler and a small heap: the start is what a test waits for.
		"-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx512m", "-Dsightings="+file, fmt.Sprintf("-Dprefix=%v", *prefixFlag), "-Dbase="+t.TempDir(),
		"-cp", classes+":"+filepath.Join(lib, "*"), "orders.Main")
	return p.says(t, `(?m)^listening on (127\.0\.0\.1:\d+)$`)
}

// compile returns a directory with the classes of the sources. Its name has the
// hash of what goes in; it comes into being by a rename, so two compilers at
// once do no harm.
func compile(t *testing.T, root, name, lib string, files []string) string {
	hash := sha256.New()
	fmt.Fprintln(hash, filepath.Base(lib))
	for _, f := range files {
		text, err := os.ReadFile(f)
		bedtest.Check(t, err)
		hash.Write(text)
	}
	parent := filepath.Join(root, ".cache", "java")
	classes := filepath.Join(parent, fmt.Sprintf("%s-%x", name, hash.Sum(nil)[:8]))
	if _, err := os.Stat(classes); err == nil {
		return classes
	}
	javac := program(t, "javac", "differential")
	bedtest.Check(t, os.MkdirAll(parent, 0o755))
	work, err := os.MkdirTemp(parent, "work-")
	bedtest.Check(t, err)
	defer func() { _ = os.RemoveAll(work) }() // what stays is only clutter
	// Spring finds parameters by their names.
	args := append([]string{"--release", "17", "-parameters", "-proc:none", "-cp", filepath.Join(lib, "*"), "-d", work}, files...)
	if out, err := exec.CommandContext(t.Context(), javac, args...).CombinedOutput(); err != nil {
		t.Fatalf("compiling %s: %v: %s", name, err, out)
	}
	// Whoever was first has the name; the classes are the same.
	if err := os.Rename(work, classes); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatalf("compiling %s: %v", name, err)
	}
	return classes
}

// runPHP starts PHP's built-in server, for the script of a folder.
func runPHP(t *testing.T, root, script, file string) string {
	php := program(t, "php", "php")
	dir := filepath.Join(root, folder, script)
	p := start(t, "php", []string{"BACKEND=php", "SIGHTINGS=" + file, "PHP_CLI_SERVER_WORKERS=4", "PREFIX=" + prefix()}, nil, php,
		"-d", "display_errors=stderr", "-S", "127.0.0.1:0", "-t", dir, filepath.Join(dir, "index.php"))
	return p.says(t, `\(http://(127\.0\.0\.1:\d+)\) started`)
}

// runNginx starts nginx with php-fpm behind it, for the script of a folder.
func runNginx(t *testing.T, root, script, file string) string {
	nginx := program(t, "nginx", "differential")
	fpm := phpFPM(t)
	// A Unix socket's path has little room: not in the test's directory.
	dir, err := os.MkdirTemp("", "fpm")
	bedtest.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	replace := strings.NewReplacer("SOCKET", socket, "WORK", dir, "USER", currentUser())
	args := []string{"--nodaemonize", "--fpm-config", fill(t, root, replace, dir, "nginx/php-fpm.conf")}
	if os.Geteuid() == 0 {
		args = append(args, "--allow-to-run-as-root")
	}
	start(t, "php-fpm", nil, nil, fpm, args...).until(t, "listened", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})

	// nginx can't tell a port that the kernel chose, but it takes over a socket
	// that listens already, as it does from its own predecessor.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	bedtest.Check(t, err)
	defer listener.Close()
	handed, err := listener.(*net.TCPListener).File()
	bedtest.Check(t, err)
	defer handed.Close()
	addr := listener.Addr().String()
	replace = strings.NewReplacer("SOCKET", socket, "FOLDER", filepath.Join(root, folder, script), "SIGHTINGS_FILE", file, "WORK", dir, "ADDRESS", addr, "PREFIXES", prefix(), "USER", currentUser())
	start(t, "nginx", []string{"NGINX=4;"}, []*os.File{handed}, nginx, "-p", dir, "-e", "stderr", "-c", fill(t, root, replace, dir, "nginx/nginx.conf"))
	return addr
}

// modules is where Debian has Apache's.
const modules = "/usr/lib/apache2/modules"

// runApache starts Apache with mod_php, for the script of a folder.
func runApache(t *testing.T, root, script, file string) string {
	apache := program(t, "apache2", "differential")
	php, err := filepath.Glob(filepath.Join(modules, "libphp*.so"))
	bedtest.Check(t, err)
	if len(php) == 0 {
		bedtest.Check(t, &testbed.MissingError{Program: "Apache's mod_php", Fetch: "differential"})
	}
	// As root, Apache gives itself another user, who has to find the script and the file.
	dir, err := os.MkdirTemp("", "apache")
	bedtest.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	bedtest.Check(t, os.CopyFS(dir, os.DirFS(filepath.Join(root, folder, script))))
	user := ""
	if os.Geteuid() == 0 {
		user = "User #65534\nGroup #65534\n"
		bedtest.Check(t, os.WriteFile(file, nil, 0o600))
		bedtest.Check(t, os.Chmod(dir, 0o711))
		bedtest.Check(t, os.Chmod(file, 0o666))
		for parent := filepath.Dir(file); parent != filepath.Dir(parent) && parent != os.TempDir(); parent = filepath.Dir(parent) {
			bedtest.Check(t, os.Chmod(parent, 0o755))
		}
	}
	addr := keepPort(t)
	replace := strings.NewReplacer("ADDRESS", addr, "FOLDER", dir, "SIGHTINGS_FILE", file, "WORK", dir, "USER_LINES", user, "MODULES", modules, "PHP_MODULE", slices.Max(php))
	start(t, "apache", nil, nil, apache, "-DFOREGROUND", "-f", fill(t, root, replace, dir, "apache/apache.conf")).until(t, "listened", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return addr
}

// keepPort has the kernel choose a port and keeps it, bound and not listening, for a
// server that can neither tell a port nor take over a socket: SO_REUSEADDR, which servers
// set, lets it in, and the kernel gives the port to nobody else.
func keepPort(t *testing.T) (addr string) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	bedtest.Check(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	bedtest.Check(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	bedtest.Check(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound, err := syscall.Getsockname(fd)
	bedtest.Check(t, err)
	return fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
}

// prefix is the flag as PHP takes it.
func prefix() string {
	if *prefixFlag {
		return "1"
	}
	return ""
}

// fill copies a configuration with its words in capitals replaced.
func fill(t *testing.T, root string, replace *strings.Replacer, dir, name string) string {
	text, err := os.ReadFile(filepath.Join(root, folder, name))
	bedtest.Check(t, err)
	path := filepath.Join(dir, filepath.Base(name))
	bedtest.Check(t, os.WriteFile(path, []byte(replace.Replace(string(text))), 0o600))
	return path
}

func currentUser() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return strconv.Itoa(os.Geteuid())
}

// phpFPM finds php-fpm, whose name has PHP's version in it.
func phpFPM(t *testing.T) string {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin") {
		if found, err := filepath.Glob(filepath.Join(dir, "php-fpm*")); err == nil && len(found) > 0 {
			return slices.Max(found)
		}
	}
	bedtest.Check(t, &testbed.MissingError{Program: "php-fpm", Fetch: "differential"})
	return ""
}

// program finds a program on the PATH, or where Debian has servers.
func program(t *testing.T, name, fetch string) string {
	for _, candidate := range []string{name, filepath.Join("/usr/sbin", name)} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	bedtest.Check(t, &testbed.MissingError{Program: name, Fetch: fetch})
	return ""
}
