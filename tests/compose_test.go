package tests

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// composeServices runs the services of examples/compose on one image of Debian, since there may be no
// registry of images. What the image of MariaDB does at its first start is done here by hand.
const composeServices = `
services:
  envoy: {image: localhost/services, volumes: ["ENVOY:/usr/local/bin/envoy:ro"]}
  redis: {image: localhost/services}
  shop: {image: localhost/services}
  prometheus: {image: localhost/services}
  mariadb:
    image: localhost/services
    command:
    - sh
    - -ec
    - |
      mkdir -p /run/mysqld
      chown mysql /run/mysqld /var/lib/mysql
      mariadb-install-db --user=mysql --datadir=/var/lib/mysql >/dev/null
      mariadbd --user=mysql --skip-networking &
      until mariadb -e "SELECT 1" >/dev/null 2>&1; do sleep 0.2; done
      (echo "CREATE DATABASE shop; CREATE USER shop@'%' IDENTIFIED BY 'shop'; GRANT ALL ON shop.* TO shop@'%'; USE shop;"; cat /docker-entrypoint-initdb.d/*.sql) | mariadb
      mariadb-admin shutdown
      wait
      exec mariadbd --user=mysql --bind-address=127.0.0.1 --log-bin --binlog-format=ROW --server-id=1 --skip-name-resolve
`

// TestCompose starts examples/compose, makes an order, and looks up others.
func TestCompose(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	dist := releases(t, bed, "0.1.0")
	envoy, err := filepath.EvalSymlinks(filepath.Join(bed.Root(), ".cache", "bin", "envoy"))
	must(t, err)
	dir := t.TempDir()
	services, limits, wrapper := filepath.Join(dir, "services.yaml"), filepath.Join(dir, "containers.conf"), filepath.Join(dir, "podman")
	must(t, os.WriteFile(services, []byte(bedtest.Replace(composeServices, "ENVOY", envoy)), 0o600))
	must(t, os.WriteFile(limits, []byte(containerLimits), 0o600))
	must(t, os.WriteFile(wrapper, []byte("#!/bin/sh\nexec podman "+strings.Join(podmanOptions, " ")+" \"$@\"\n"), 0o700)) //nolint:gosec // a program
	for _, args := range [][]string{
		{"import", "--quiet", filepath.Join(bed.Root(), ".cache", "images", "services.tar"), "localhost/services"},
		{"load", "--quiet", "--input", fmt.Sprintf("%s/0.1.0/ordergate_0.1.0_linux_%s.oci.tar", dist, runtime.GOARCH)},
	} {
		if out, err := podman(t.Context(), args...).CombinedOutput(); err != nil {
			t.Fatalf("podman %v: %v\n%s", args, err, out)
		}
	}
	shopPort, prometheusPort := freePort(t), freePort(t)
	compose := func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "/usr/bin/python3", append([]string{filepath.Join(bed.Root(), ".cache", "bin", "podman-compose"), "--podman-path", wrapper, "--project-name", "og" + shopPort, "--file", filepath.Join(bed.Root(), "examples", "compose", "compose.yaml"), "--file", services}, args...)...)
		cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+limits, "SHOP_PORT="+shopPort, "PROMETHEUS_PORT="+prometheusPort)
		return cmd
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := podman(context.Background(), "ps", "--all").CombinedOutput()
			t.Logf("%s", out)
			for _, name := range []string{"envoy", "ordergate", "mariadb", "shop", "prometheus", "redis"} {
				out, _ := podman(context.Background(), "logs", "--tail", "15", "og"+shopPort+"_"+name+"_1").CombinedOutput()
				t.Logf("%s: %s", name, out)
			}
		}
		_ = compose(context.Background(), "down", "--volumes").Run()
	})
	if out, err := compose(t.Context(), "up", "--detach").CombinedOutput(); err != nil {
		t.Fatalf("podman-compose up: %v\n%s", err, out)
	}
	s := &stack{Bed: bed, t: t, url: "http://127.0.0.1:" + shopPort}
	const orderPage = "/index.php?route=account/order.info&order_id="
	bedtest.Eventually(t, "an order can be absent", func() bool {
		a, err := s.send(t.Context(), "GET", orderPage+"8000000", "")
		return err == nil && a.verdict == "absent"
	})
	bedtest.Eventually(t, "Prometheus has scraped it", func() bool {
		r, err := http.Get("http://127.0.0.1:" + prometheusPort + "/api/v1/query?query=up%7Bjob%3D%22ordergate%22%7D") //nolint:noctx // bounded by Eventually
		if err != nil {
			return false
		}
		defer r.Body.Close()
		var body bytes.Buffer
		_, err = body.ReadFrom(r.Body)
		return err == nil && strings.Contains(body.String(), `,"1"]`)
	})
}

// freePort returns a port of loopback that nobody listens at.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	must(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	return port
}
