package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
)

// Shop is a running shop of examples/shops.
type Shop struct {
	*Process
	addr string
	log  string
}

// Addr returns the shop's "host:port".
func (s *Shop) Addr() string { return s.addr }

// AccessLog returns a line for every request that reached the shop, as "METHOD target".
func (s *Shop) AccessLog() ([]string, error) { return readLines(s.log) }

var (
	phpPort    = regexp.MustCompile(`\(http://127\.0\.0\.1:(\d+)\) started`)
	springPort = regexp.MustCompile(`Tomcat started on port\(s\): (\d+) `)
)

// FrontShop starts examples/shops/front on the tables of the database. The context bounds
// the start.
func (b *Bed) FrontShop(ctx context.Context, db *MariaDB) (*Shop, error) {
	php, err := lookPath("php", "shops")
	if err != nil {
		return nil, err
	}
	if modules, err := exec.CommandContext(ctx, php, "-m").Output(); err != nil || !bytes.Contains(modules, []byte("pdo_mysql")) {
		return nil, &MissingError{Program: "php's pdo_mysql", Fetch: "shops"}
	}
	dir, err := os.MkdirTemp(b.dir, "shop-")
	if err != nil {
		return nil, fmt.Errorf("starting the shop: %w", err)
	}
	c := db.Config()
	s := &Shop{log: filepath.Join(dir, "access.log")}
	port := c.Addr[len("127.0.0.1:"):]
	s.Process = &Process{
		path: php,
		args: []string{"-S", "127.0.0.1:0", filepath.Join(b.root, "examples", "shops", "front", "index.php")},
		env: []string{
			"SHOP_DSN=mysql:host=127.0.0.1;port=" + port + ";dbname=" + c.DBName, "SHOP_USER=" + c.User, "SHOP_PASSWORD=" + c.Passwd,
			"SHOP_LOG=" + s.log, "PHP_CLI_SERVER_WORKERS=7",
		},
		// As for the old PHP service.
		stop: syscall.SIGINT, forks: true,
	}
	return s, b.shop(ctx, "front", s, phpPort)
}

// SpringShop starts examples/shops/spring on the tables of the database. The first start
// compiles it into .cache. The context bounds the start, not the compiler.
func (b *Bed) SpringShop(ctx context.Context, db *MariaDB) (*Shop, error) {
	java, err := lookPath("java", "java")
	if err != nil {
		return nil, err
	}
	source := filepath.Join(b.root, "examples", "shops", "spring")
	jars, err := b.jars(source, "shops")
	if err != nil {
		return nil, err
	}
	classes, err := b.compileWithJars(ctx, "spring", jars, []string{filepath.Join(source, "Shop.java")})
	if err != nil {
		return nil, fmt.Errorf("compiling the shop: %w", err)
	}
	dir, err := os.MkdirTemp(b.dir, "shop-")
	if err != nil {
		return nil, fmt.Errorf("starting the shop: %w", err)
	}
	c := db.Config()
	s := &Shop{log: filepath.Join(dir, "access.log")}
	s.Process = &Process{path: java, args: []string{
		// The cheap compiler and a small heap: the start is what a test waits for.
		"-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m", "-cp", classes + ":" + filepath.Join(jars, "*"), "shop.Shop",
		"--server.address=127.0.0.1", "--server.port=0", "--server.tomcat.basedir=" + dir,
		"--server.tomcat.accesslog.enabled=true", "--server.tomcat.accesslog.directory=" + dir,
		"--server.tomcat.accesslog.prefix=access", "--server.tomcat.accesslog.rotate=false",
		"--server.tomcat.accesslog.buffered=false", "--server.tomcat.accesslog.pattern=%m %U%q",
	}, env: []string{
		"SPRING_DATASOURCE_URL=jdbc:mariadb://" + c.Addr + "/" + c.DBName,
		"SPRING_DATASOURCE_USERNAME=" + c.User, "SPRING_DATASOURCE_PASSWORD=" + c.Passwd,
	}}
	return s, b.shop(ctx, "spring", s, springPort)
}

// shop starts the process on a free port, which the shop prints.
func (b *Bed) shop(ctx context.Context, kind string, s *Shop, started *regexp.Regexp) error {
	s.ready = func(ctx context.Context, r *run) error {
		var port string
		err := r.says(ctx, started, &port)
		s.addr = "127.0.0.1:" + port
		return err
	}
	return b.launch(ctx, kind, s.Process)
}
