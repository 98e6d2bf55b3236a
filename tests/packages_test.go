package tests

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/wait"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// made has the releases that a test has asked for, by version: they are made once.
var made struct {
	sync.Mutex
	dist string
}

// releases makes releases for this machine, and returns a folder that has them by version.
func releases(t *testing.T, bed *bedtest.Bed, versions ...string) (dist string) {
	t.Helper()
	if os.Getenv("SOAK") == "" {
		t.Skip("it makes releases and starts containers: make soak runs it")
	}
	needsSidecar(t, "it has no Envoy")
	made.Lock()
	defer made.Unlock()
	if made.dist == "" {
		made.dist = filepath.Join(bed.Root(), ".cache", "releases")
		must(t, os.RemoveAll(made.dist))
	}
	for _, version := range versions {
		into := filepath.Join(made.dist, version)
		if _, err := os.Stat(filepath.Join(into, "SHA256SUMS")); err == nil {
			continue
		}
		out, err := exec.CommandContext(t.Context(), "make", "-C", bed.Root(), "release", "VERSION="+version, "DIST="+into, "ARCHES="+runtime.GOARCH).CombinedOutput()
		if err != nil {
			t.Fatalf("make release: %v\n%s", err, out)
		}
	}
	return made.dist
}

// container is a running container. It shares the network of this machine: loopback.
type container struct {
	t    *testing.T
	name string
}

// podmanOptions let podman run as root in a container itself, where it manages no cgroups by systemd.
var podmanOptions = []string{"--storage-driver=overlay", "--cgroup-manager=cgroupfs", "--runtime=runc"}

// containerLimits are those that a container may have in a container.
const containerLimits = "[containers]\ndefault_ulimits = [\"nofile=20000:20000\", \"nproc=1000:1000\"]\n"

func podman(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "podman", slices.Concat(podmanOptions, args)...)
}

// startContainer runs an image.
func startContainer(t *testing.T, args ...string) *container {
	t.Helper()
	limits := filepath.Join(t.TempDir(), "containers.conf")
	must(t, os.WriteFile(limits, []byte(containerLimits), 0o600))
	cmd := podman(t.Context(), append([]string{"run", "--detach", "--network=host"}, args...)...)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+limits)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v %s", cmd.Args, err, stderrOf(err))
	}
	c := &container{t, strings.TrimSpace(string(out))}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := podman(context.Background(), "logs", "--tail", "50", c.name).CombinedOutput()
			t.Logf("the container wrote at last: %s", log)
		}
		_ = podman(context.Background(), "rm", "--force", "--time=0", c.name).Run()
	})
	return c
}

func stderrOf(err error) []byte {
	if e, ok := err.(*exec.ExitError); ok { //nolint:errorlint // from Output itself
		return e.Stderr
	}
	return nil
}

// sh runs a script in it, and returns what it prints.
func (c *container) sh(script string, stdin ...string) (string, error) {
	c.t.Helper()
	cmd := podman(c.t.Context(), "exec", "--interactive", c.name, "sh", "-ec", script)
	cmd.Stdin = strings.NewReader(strings.Join(stdin, ""))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// must runs a script that has to succeed.
func (c *container) must(script string, stdin ...string) string {
	c.t.Helper()
	out, err := c.sh(script, stdin...)
	if err != nil {
		journal, _ := c.sh("systemctl status --no-pager 'ordergate*' | tail -40")
		c.t.Fatalf("%s: %v\n%s\n%s", script, err, out, journal)
	}
	return out
}

// eventually waits until a script succeeds.
func (c *container) eventually(what, script string) {
	c.t.Helper()
	bedtest.Eventually(c.t, what, func() bool {
		_, err := c.sh(script)
		return err == nil
	})
}

// startSystem starts an image of .cache with systemd, and with the releases in /dist.
func startSystem(t *testing.T, bed *bedtest.Bed, image, dist string, args ...string) *container {
	t.Helper()
	id, err := podman(t.Context(), "import", "--quiet", filepath.Join(bed.Root(), ".cache", "images", image+".tar")).Output()
	must(t, err)
	c := startContainer(t, slices.Concat([]string{"--systemd=always", "--cap-add=SYS_ADMIN", "--memory=1g", "--volume", dist + ":/dist:ro"}, args, []string{strings.TrimSpace(string(id)), "/sbin/init"})...)
	c.eventually("systemd runs", "systemctl is-system-running | grep -E 'running|degraded'")
	return c
}

// socketStack is a stack whose ordergate runs elsewhere, with its sockets in a folder.
func socketStack(t *testing.T, bed *bedtest.Bed, b *backend) (s *stack, sockets, config string) {
	t.Helper()
	sockets, err := os.MkdirTemp("", "og") // a socket's path has to be short
	must(t, err)
	must(t, os.Chmod(sockets, 0o777)) //nolint:gosec // for the user in the container, in a folder of this test
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	s = &stack{Bed: bed, t: t, server: bed.Redis()}
	s.redis = redis.NewClient(&redis.Options{Addr: s.server.Addr()})
	t.Cleanup(func() { _ = s.redis.Close() })
	// Calls that wait for a restart come all at once, from one client.
	config = edit(t, "settle: {lock: settlement}", "settle: {lock: settlement, max_in_flight: 10000, max_in_flight_per_client: 10000}", "authz: 127.0.0.1:0", "authz: unix:/run/ordergate/authz.sock", "proc:  127.0.0.1:0", "proc: unix:/run/ordergate/proc.sock",
		"admin: 127.0.0.1:0", "http: unix:/run/ordergate/http.sock\n  admin: unix:/run/ordergate/admin.sock", "path: "+idsMarker, "path: /etc/ordergate/orders.csv")(shortLease(s.GateExample(s.server.Addr(), idsMarker)))
	s.envoy = s.Envoy(check(t)(s.EnvoyExample("unix:"+sockets+"/authz.sock", "unix:"+sockets+"/proc.sock", b.addr())))
	s.url = "http://" + s.ListenerAddr(s.envoy, "orders")
	return s, sockets, config
}

// idsMarker stands for the file of IDs.
const idsMarker = "/ids-of-the-container.csv"

func csvOf(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintln(&text, i+1)
	}
	return text.String()
}

// TestPackage installs the deb on a bare Debian with systemd, restarts, reloads, upgrades and removes
// it, with an Envoy in front of it under load.
func TestPackage(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	dist := releases(t, bed, "0.1.0", "0.1.1")
	b := newBackend(t)
	s, sockets, config := socketStack(t, bed, b)
	c := startSystem(t, bed, "debian", dist, "--volume", sockets+":/run/ordergate")

	deb := func(version string) string {
		return fmt.Sprintf("/dist/%s/ordergate_%s_linux_%s.deb", version, version, runtime.GOARCH)
	}
	readme, _, _ := installBlocks(t, bed.Root())
	out := c.must("cd /; sudo() { \"$@\"; }; " + edit(t, "./dist/ordergate_0.1.0_linux_amd64.deb", deb("0.1.0"))(readme))
	if !strings.Contains(out, "HTTP/1.1 404 Not Found") {
		t.Errorf("README's commands print %s", out)
	}
	c.must("systemctl is-active ordergate.service ordergate.socket && systemctl is-enabled ordergate.service")
	if got := c.must("curl -fsS --unix-socket /run/ordergate/admin.sock http://localhost/readyz && ordergate version"); !strings.Contains(got, "ordergate 0.1.0") {
		t.Errorf("it says %q", got)
	}
	exposure := c.must("systemd-analyze security --no-pager ordergate.service | grep 'Overall exposure'")
	if level, err := strconv.ParseFloat(regexp.MustCompile(`[0-9]+\.[0-9]+`).FindString(exposure), 64); err != nil || level > 1.5 {
		t.Errorf("want an exposure of at most 1.5, got %s", exposure)
	}

	// A file of our own: the real Redis, and a snapshot.
	config = bedtest.Replace(config, "    sources: [", "    snapshot: {path: /var/lib/ordergate/orders.snapshot, every: 1s}\n    sources: [")
	write := func(text string) { c.must("cat > /etc/ordergate/ordergate.yaml", text) }
	c.must("cat > /etc/ordergate/orders.csv", csvOf(20_000))
	write(config)
	c.must("ordergate check --config /etc/ordergate/ordergate.yaml && systemctl restart ordergate")
	ready := func(what string) {
		t.Helper()
		c.eventually(what+": ordergate is ready", "ordergate health --ready --config /etc/ordergate/ordergate.yaml")
	}
	ready("own file")
	pid := func() string { return strings.TrimSpace(c.must("systemctl show --value --property=MainPID ordergate")) }

	// Restarts under load: no request fails, and the settlement in flight ends as it should.
	stop := s.callSteadily()
	settled := s.inBackground(t.Context(), "/orders/1/settle?do=hang")
	bedtest.Eventually(t, "a settlement is in flight", func() bool { return b.arrived("/orders/1/settle") == 1 })
	before, restarted := pid(), make(chan error, 1)
	go func() {
		_, err := c.sh("systemctl restart ordergate")
		restarted <- err
	}()
	c.eventually("it is stopping", "systemctl is-active ordergate | grep deactivating")
	b.goOn()
	must(t, <-restarted)
	if !<-settled || pid() == before {
		t.Error("the settlement in flight failed, or nothing was restarted")
	}
	for range 3 {
		c.must("systemctl restart ordergate")
	}
	stop()
	s.wantFate("1", released)

	// A reload of a good file, and of a bad one.
	write(config + "# changed\n")
	c.must("systemctl reload ordergate && systemctl is-active ordergate")
	write("rules: 5\n")
	c.must("systemctl reload ordergate && systemctl is-active ordergate")
	c.eventually("the log names the mistake", "journalctl -u ordergate | grep 'the configuration is bad, the old one stays'")
	write(config)

	// The watchdog restarts one that stands still.
	c.must("mkdir -p /etc/systemd/system/ordergate.service.d && printf '[Service]\\nWatchdogSec=3\\n' > /etc/systemd/system/ordergate.service.d/test.conf && systemctl daemon-reload && systemctl restart ordergate")
	before = pid()
	c.must("kill -STOP " + before)
	c.eventually("another one runs", "systemctl is-active ordergate && test $(systemctl show --value --property=MainPID ordergate) -ne "+before)
	ready("after the watchdog")
	if out, _ := c.sh("journalctl -u ordergate | grep 'watchdog is not fed'"); out != "" {
		t.Errorf("the watchdog is not fed: %s", out)
	}

	// An upgrade: the snapshot and the edited file stay, no request fails.
	c.eventually("a snapshot is written", "ls /var/lib/private/ordergate/orders.snapshot")
	stop = s.callSteadily()
	c.must("dpkg --install " + deb("0.1.1"))
	ready("upgrade")
	stop()
	if got := c.must("ordergate version; cat /etc/ordergate/ordergate.yaml; journalctl -u ordergate | grep -c 'filter is ready, from its snapshot'"); !strings.Contains(got, "0.1.1") || !strings.Contains(got, config) {
		t.Errorf("after the upgrade: %s", got)
	}

	// A second instance has everything of its own.
	c.must("sed -e 's|/run/ordergate/|/run/ordergate-shop/|; s|/var/lib/ordergate/|/var/lib/ordergate-shop/|' /etc/ordergate/ordergate.yaml > /etc/ordergate/shop.yaml && systemctl start ordergate@shop")
	c.eventually("the second instance is ready", "ordergate health --ready --config /etc/ordergate/shop.yaml")
	c.eventually("it has a snapshot of its own", "ls /var/lib/private/ordergate-shop/orders.snapshot")
	if members, err := s.redis.ZCard(t.Context(), "ordergate:{orders}:members").Result(); err != nil || members != 2 {
		t.Errorf("%d members of the change log, %v", members, err)
	}

	// A variable that is missing is named in the unit's status.
	write(edit(t, "  seed: {", "  db: {kind: mysql, dsn_env: ORDERS_DSN, table: orders, id_column: id}\n  seed: {")(config))
	if out, err := c.sh("systemctl restart ordergate"); err == nil {
		t.Errorf("it starts without the variable: %s", out)
	}
	c.eventually("the status names the variable", "systemctl status --no-pager ordergate | grep -E 'Status: .*/ordergate.yaml:[0-9]+: sources.db.dsn_env: the variable of this name is not set'")
	c.must("dpkg --install " + deb("0.1.0") + " && ordergate version | grep 0.1.0") // it does not start, and is installed
	write(config)
	c.must("systemctl restart ordergate")

	c.must("systemctl enable ordergate@shop && dpkg --remove ordergate && ! pgrep -x ordergate && ls /var/lib/private/ordergate/orders.snapshot /etc/ordergate/ordergate.yaml")
	if left := c.must("find /etc/systemd/system -name '*ordergate*.s*' -type l"); left != "" {
		t.Errorf("after the removal, systemd has %s", left)
	}
	c.must("dpkg --install " + deb("0.1.1"))
	ready("installed again")
	c.must("mkdir /var/lib/ordergate-other && dpkg --purge ordergate && ! ls -d /var/lib/private/ordergate* /var/lib/ordergate /var/lib/ordergate-shop /etc/ordergate 2>/dev/null && rmdir /var/lib/ordergate-other")
}

// TestRPM installs, upgrades, downgrades and removes the rpm, on a Debian that has rpm.
func TestRPM(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	dist := releases(t, bed, "0.1.0", "0.1.1")
	c := startSystem(t, bed, "rpm", dist)
	rpm := func(version string) string {
		return fmt.Sprintf("/dist/%s/ordergate_%s_linux_%s.rpm", version, version, runtime.GOARCH)
	}
	active := func(version string) {
		t.Helper()
		c.must("systemctl is-active ordergate.service ordergate.socket && systemctl is-enabled ordergate && ordergate health --config /etc/ordergate/ordergate.yaml && ordergate version | grep " + version)
	}
	c.must("rpm --nodeps --install " + rpm("0.1.0") + " && rpm --verify ordergate")
	active("0.1.0")
	if got := c.must("stat --format '%a %U:%G %n' /etc/ordergate/ordergate.env /usr/bin/ordergate /run/ordergate/proc.sock"); got != "600 root:root /etc/ordergate/ordergate.env\n755 root:root /usr/bin/ordergate\n660 root:ordergate-clients /run/ordergate/proc.sock\n" {
		t.Errorf("it installs %s", got)
	}
	c.must("echo '# mine' >> /etc/ordergate/ordergate.yaml")
	before := c.must("systemctl show --value --property=MainPID ordergate")
	for _, version := range []string{"0.1.1", "0.1.0"} {
		c.must("rpm --nodeps --upgrade --oldpackage " + rpm(version) + " && grep '# mine' /etc/ordergate/ordergate.yaml")
		active(version)
	}
	if after := c.must("systemctl show --value --property=MainPID ordergate"); after == before {
		t.Error("an upgrade does not restart it")
	}
	c.must("sed 's|/run/ordergate/|/run/ordergate-shop/|' /etc/ordergate/ordergate.yaml > /etc/ordergate/shop.yaml && systemctl enable --now ordergate@shop")
	c.must("rpm --erase ordergate && ! pgrep -x ordergate && ! ls /usr/bin/ordergate && grep '# mine' /etc/ordergate/ordergate.yaml.rpmsave && ls -d /var/lib/private/ordergate")
	if left := c.must("find /etc/systemd /usr -name '*ordergate*' && find /run/ordergate*/ -type s"); left != "" {
		t.Errorf("it leaves %s", left)
	}
}

// TestImage runs the image with a file system that it cannot write to, without capabilities and with
// 256 MB, under load. It ends in the middle of a settlement.
func TestImage(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	dist := releases(t, bed, "0.1.0")
	b := newBackend(t)
	s, sockets, config := socketStack(t, bed, b)
	files := t.TempDir()
	must(t, os.Chmod(files, 0o755)) //nolint:gosec // the user in the container reads it
	for name, text := range map[string]string{"ordergate.yaml": config, "orders.csv": csvOf(20_000)} {
		must(t, os.WriteFile(filepath.Join(files, name), []byte(text), 0o644)) //nolint:gosec // as above
	}
	// An Envoy of another user may use the sockets that this one makes.
	must(t, os.WriteFile(filepath.Join(files, "ordergate.yaml"), []byte(edit(t, "listen:\n", "listen:\n  socket_mode: \"0666\"\n")(config)), 0o644)) //nolint:gosec // as above
	_, readme, _ := installBlocks(t, bed.Root())
	for _, option := range []string{"podman run --read-only --cap-drop=all -v /etc/ordergate:/etc/ordergate:ro -v /run/ordergate:/run/ordergate "} {
		if !strings.Contains(readme, option) {
			t.Errorf("README.md has no %q", option)
		}
	}
	c := startContainer(t, "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--memory=256m", "--volume", sockets+":/run/ordergate", "--volume", files+":/etc/ordergate:ro",
		"--health-cmd=[\"/ordergate\",\"health\",\"--config\",\"/etc/ordergate/ordergate.yaml\"]",
		fmt.Sprintf("oci-archive:%s/0.1.0/ordergate_0.1.0_linux_%s.oci.tar", dist, runtime.GOARCH))
	bedtest.Eventually(t, "it is healthy", func() bool { return podman(t.Context(), "healthcheck", "run", c.name).Run() == nil })
	bedtest.Eventually(t, "it is ready", func() bool {
		return podman(t.Context(), "exec", c.name, "/ordergate", "health", "--ready", "--config", "/etc/ordergate/ordergate.yaml").Run() == nil
	})
	if a := s.must("GET", "/orders/30000", ""); a.status != 404 {
		t.Errorf("an order that does not exist: %d %q", a.status, a.verdict)
	}
	stop := s.callSteadily()
	time.Sleep(2 * time.Second) // load enough for its memory to show
	stop()
	settled := s.inBackground(t.Context(), "/orders/1/settle?do=hang")
	bedtest.Eventually(t, "a settlement is in flight", func() bool { return b.arrived("/orders/1/settle") == 1 })
	must(t, podman(t.Context(), "kill", "--signal=TERM", c.name).Run())
	bedtest.Eventually(t, "it is stopping", func() bool {
		log, _ := podman(t.Context(), "logs", c.name).CombinedOutput()
		return bytes.Contains(log, []byte("stopping: running calls may finish"))
	})
	b.goOn()
	if !<-settled {
		t.Error("the settlement in flight failed")
	}
	s.wantFate("1", released)
	if code, err := podman(t.Context(), "wait", c.name).Output(); err != nil || strings.TrimSpace(string(code)) != "0" {
		t.Errorf("it exits with %s, %v", code, err)
	}
}

// TestEnvoyImage builds the image of Envoy with the module on the Debian of the tests, and runs it.
func TestEnvoyImage(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	dist := releases(t, bed, "0.1.0")
	b := newBackend(t)
	server := bed.Redis()
	image, err := podman(t.Context(), "import", "--quiet", filepath.Join(bed.Root(), ".cache", "images", "debian.tar")).Output()
	must(t, err)
	out, err := podman(t.Context(), "build", "--isolation=chroot", "--quiet", "--from", strings.TrimSpace(string(image)), "--build-arg", "VERSION=0.1.0", "--build-arg", "TARGETARCH="+runtime.GOARCH,
		"--file", filepath.Join(dist, "0.1.0", "envoy.Containerfile"), filepath.Join(dist, "0.1.0")).Output()
	if err != nil {
		t.Fatalf("podman build: %v %s", err, stderrOf(err))
	}
	files := t.TempDir()
	must(t, os.Chmod(files, 0o755)) //nolint:gosec // the user in the container reads it
	port := freePort(t)
	gate := edit(t, "path: "+idsMarker, "path: /etc/ordergate/orders.csv")(bed.GateExample(server.Addr(), idsMarker))
	envoy := edit(t, "port_value: 0 ", "port_value: "+port+" ")(check(t)(bed.ModuleExample("/etc/ordergate/ordergate.yaml", b.addr())))
	for name, text := range map[string]string{"ordergate.yaml": gate, "orders.csv": csvOf(1000), "envoy.yaml": envoy} {
		must(t, os.WriteFile(filepath.Join(files, name), []byte(text), 0o644)) //nolint:gosec // as above
	}
	binary, err := filepath.EvalSymlinks(filepath.Join(bed.Root(), ".cache", "bin", "envoy"))
	must(t, err)
	startContainer(t, "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--user=65532:65532", "--volume", files+":/etc/ordergate:ro", "--volume", binary+":/usr/local/bin/envoy:ro",
		strings.TrimSpace(string(out)), "envoy", "--disable-hot-restart", "-c", "/etc/ordergate/envoy.yaml")
	s := &stack{Bed: bed, t: t, url: "http://127.0.0.1:" + port}
	bedtest.Eventually(t, "an order can be absent", func() bool {
		a, err := s.send(t.Context(), "GET", "/orders/5000", "")
		return err == nil && a.status == 404
	})
	s.must("GET", "/orders/5", "").want(t, 200, "")
	s.must("POST", "/orders/5/settle", "").want(t, 200, "")
}

// callSteadily sends 100 lookups and 100 settlements a second, also while the answers to earlier ones are
// awaited. Each has to succeed.
func (s *stack) callSteadily() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var ticker, calls sync.WaitGroup
	sent := 0
	ticker.Go(func() {
		for range wait.Every(ctx, 10*time.Millisecond) {
			sent++
			for method, target := range map[string]string{"GET": fmt.Sprintf("/orders/%d", 100+sent), "POST": fmt.Sprintf("/orders/%d/settle", 100+sent)} {
				calls.Go(func() {
					if a, err := s.send(s.t.Context(), method, target, ""); err != nil || a.status != 200 {
						s.t.Errorf("%s %s: got %d %q %v, want 200", method, target, a.status, a.verdict, err)
					}
				})
			}
		}
	})
	return func() {
		cancel()
		ticker.Wait()
		calls.Wait()
		if sent < 100 {
			s.t.Errorf("only %d calls of each kind", sent)
		}
	}
}
