package dsn

import "testing"

func TestOnlyPasswordsDiffer(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"u:a@tcp(h:1)/d", "u:b@tcp(h:1)/d", true},
		{"u:a@tcp(h:1)/d?tls=true", "u:b@tcp(h:1)/d", false},
		{"u:a@tcp(h:1)/d", "v:a@tcp(h:1)/d", false},
		{"mysql://u:a@h:1/d", "mysql://u:b%2f@h:1/d", true},
		{"mysql://u:a@h:1/d", "mysql://u:a@h:2/d", false},
		{"postgres://u:a@h/d?sslmode=disable", "postgres://u@h/d?sslmode=disable", true},
		{"postgres://u:a@h/d", "postgres://u:a@h/e", false},
		{"host=/run user=u password=a dbname=d", "host=/run user=u password='b \\' c' dbname=d", true},
		{"host=/run user=u password=a dbname=d", "host=/run user=u password=a dbname=e", false},
		{"", "u:a@tcp(h:1)/d", false},
	} {
		if got := OnlyPasswordsDiffer(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q: %v", tt.a, tt.b, got)
		}
	}
}

func TestPasswordOfAnotherServer(t *testing.T) {
	config, ok := MySQL("u:old@tcp(h:1)/d", nil)
	if !ok {
		t.Fatal("it is malformed")
	}
	for dsn, want := range map[string]string{"u:new@tcp(h:1)/d": "new", "u:new@tcp(h:2)/d": "old", "v:new@tcp(h:1)/d": "old", "": "old"} {
		if got := MySQLPassword(config, func() string { return dsn }); got != want {
			t.Errorf("%q: %q, want %q", dsn, got, want)
		}
	}
}
