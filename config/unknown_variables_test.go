package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUnknownVariables names variables that stand for no key, and no others.
func TestUnknownVariables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	file := "redis: {password_env: ORDERGATE_PW}\nlocks: {settlement: {}}\n" +
		"filters: {orders: {secret_env: ORDERGATE_SECRET, sources: [db]}}\n" +
		"sources: {db: {kind: mysql, dsn_env: ORDERGATE_DSN, table: t, id_column: id}}\n" +
		"log: {decisions: {ids: hashed, secret_env: ORDERGATE_LOG_KEY}}\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{
		"ORDERGATE_PW=x", "ORDERGATE_SECRET=0123456789abcdef", "ORDERGATE_DSN=x", "ORDERGATE_LOG_KEY=0123456789abcdef", // named by the file
		"ORDERGATE_REDIS_ADDRESSES=a:1", "ORDERGATE_LOCKS_SETTLEMENT_LEASE=20s",
		"ORDERGATE_REDIS_ADRESSES=a:1", "ORDERGATE_LOCKS_SETTLEMNT_LEASE=20s", "ORDERGATE_LOCKS_OTHER_LEASE=20s",
		"ORDERGATE_RULES_0_MODE=observe", "ORDERGATE_NONSENSE=hunter2", "ORDERGATE_EMPTY=", "PATH=/bin", "XORDERGATE_A=b",
		// As Kubernetes sets them for services "ordergate" and "ordergate-redis".
		"ORDERGATE_SERVICE_HOST=10.0.0.1", "ORDERGATE_SERVICE_PORT=9191", "ORDERGATE_SERVICE_PORT_GRPC=9191", "ORDERGATE_PORT=tcp://10.0.0.1:9191",
		"ORDERGATE_PORT_9191_TCP=tcp://10.0.0.1:9191", "ORDERGATE_PORT_9191_TCP_ADDR=10.0.0.1",
		"ORDERGATE_REDIS_SERVICE_HOST=10.0.0.2", "ORDERGATE_REDIS_PORT=tcp://10.0.0.2:6379", "ORDERGATE_REDIS_PORT_6379_TCP_PORT=6379",
		"ORDERGATE_LISTEN_PORT=9191",
	}
	values := env{"ORDERGATE_PW": "x", "ORDERGATE_SECRET": "0123456789abcdef", "ORDERGATE_DSN": "x", "ORDERGATE_LOG_KEY": "0123456789abcdef"}
	_, aside, err := loadWith(path, Options{Getenv: values.get, Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range aside.Variables {
		got = append(got, v.String())
	}
	want := []string{
		"environment: ORDERGATE_LISTEN_PORT: is ignored: it stands for no key of the file",
		"environment: ORDERGATE_LOCKS_OTHER_LEASE: is ignored: it stands for no key of the file",
		"environment: ORDERGATE_LOCKS_SETTLEMNT_LEASE: is ignored: it stands for no key of the file, did you mean ORDERGATE_LOCKS_SETTLEMENT_LEASE?",
		"environment: ORDERGATE_NONSENSE: is ignored: it stands for no key of the file",
		"environment: ORDERGATE_REDIS_ADRESSES: is ignored: it stands for no key of the file, did you mean ORDERGATE_REDIS_ADDRESSES?",
		"environment: ORDERGATE_RULES_0_MODE: is ignored: rules have no variables",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
