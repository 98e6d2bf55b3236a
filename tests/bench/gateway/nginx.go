package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ordergate/ordergate/tests/testbed"
)

// The configurations of nginx, with @NAMES@ for what differs, and their Lua.
//
//go:embed nginx
var nginxFiles embed.FS

// nginxConfig returns a configuration with the names replaced.
func nginxConfig(name string, values map[string]string) (string, error) {
	text, err := nginxFiles.ReadFile("nginx/" + name)
	if err != nil {
		return "", fmt.Errorf("configuring nginx: %w", err)
	}
	var pairs []string
	for name, value := range values {
		pairs = append(pairs, "@"+name+"@", value)
	}
	config := strings.NewReplacer(pairs...).Replace(string(text))
	if left := regexp.MustCompile(`@[A-Z_]+@`).FindString(config); left != "" {
		return "", fmt.Errorf("configuring nginx: %s has a %s that nobody replaces", name, left)
	}
	return config, nil
}

// startBackend starts the order service.
func startBackend(ctx context.Context, bed *testbed.Bed) (*testbed.Nginx, error) {
	config, err := nginxConfig("backend.conf", nil)
	if err != nil {
		return nil, err
	}
	return bed.Nginx(ctx, config)
}

// startNginx starts an nginx with one worker as the gateway's proxy. Its
// configuration is the named one.
func (g *gateway) startNginx(ctx context.Context, bed *testbed.Bed, name string, values map[string]string) error {
	file, err := os.CreateTemp(bed.Dir(), "wrong-*.log")
	if err != nil {
		return fmt.Errorf("configuring nginx: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("configuring nginx: %w", err)
	}
	all := map[string]string{"WRONG": file.Name()}
	for name, value := range values {
		all[name] = value
	}
	config, err := nginxConfig(name, all)
	if err != nil {
		return err
	}
	nginx, err := bed.Nginx(ctx, config)
	if err != nil {
		return err
	}
	g.url, g.proxy = "http://"+nginx.Addr(), nginx.Process
	// nginx writes a line when it has answered, and keeps none back.
	g.wrong = func(context.Context) (int64, error) {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			return 0, fmt.Errorf("reading nginx's log: %w", err)
		}
		return int64(bytes.Count(text, []byte("\n"))), nil
	}
	return nil
}

// startLua starts an nginx that asks the gateway's Redis by hand.
func (g *gateway) startLua(ctx context.Context, bed *testbed.Bed, backend string) error {
	modules, err := luaModules(ctx)
	if err != nil {
		return err
	}
	scripts, err := writeLua(bed.Dir())
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(g.redis.Addr())
	if err != nil {
		return fmt.Errorf("configuring nginx: %w", err)
	}
	return g.startNginx(ctx, bed, "lua.conf", map[string]string{
		"BACKEND": backend, "MODULES": modules, "LUA": scripts, "REDIS_HOST": host, "REDIS_PORT": port,
	})
}

var modulesPath = regexp.MustCompile(`--modules-path=(\S+)`)

// luaModules returns the directory of nginx's modules, if Lua is among them.
func luaModules(ctx context.Context) (string, error) {
	missing := &testbed.MissingError{Program: "nginx's Lua module", Fetch: "gateway"}
	program, err := exec.LookPath("nginx")
	if err != nil {
		program = "/usr/sbin/nginx" // Debian's place, which is not on every user's PATH
	}
	out, err := exec.CommandContext(ctx, program, "-V").CombinedOutput()
	if err != nil {
		return "", errors.Join(missing, err)
	}
	found := modulesPath.FindSubmatch(out)
	if found == nil {
		return "", missing
	}
	dir := string(found[1])
	if _, err := os.Stat(filepath.Join(dir, "ngx_http_lua_module.so")); err != nil {
		return "", missing
	}
	return dir, nil
}

// writeLua writes the scripts below dir, and returns where.
func writeLua(dir string) (string, error) {
	dir = filepath.Join(dir, "lua")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("writing nginx's scripts: %w", err)
	}
	names, err := fs.Glob(nginxFiles, "nginx/*.lua")
	if err != nil {
		return "", fmt.Errorf("writing nginx's scripts: %w", err)
	}
	for _, name := range names {
		text, err := nginxFiles.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o644)
		}
		if err != nil {
			return "", fmt.Errorf("writing nginx's scripts: %w", err)
		}
	}
	return dir, nil
}
