package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed"
)

func certificates(t *testing.T) *testbed.Certificates {
	t.Helper()
	c, err := testbed.NewCertificates(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTLSFiles has what can be wrong with the files, and the key that is to blame.
func TestTLSFiles(t *testing.T) {
	certs, others := certificates(t), certificates(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca, err := os.ReadFile(certs.CA)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, tls, want string }{
		{"nothing", "{}", ""},
		{"all", fmt.Sprintf("{ca: %s, cert: %s, key: %s}", certs.CA, certs.ClientCert, certs.ClientKey), ""},
		{"an authority alone", "{ca: " + certs.CA + "}", ""},
		{"two authorities", "{ca: " + write("two", "# a comment\n"+string(ca)+string(ca)) + "}", ""},
		{"no such authority", "{ca: " + dir + "/none}", "ca: reading the authorities: no such file or directory"},
		{"a directory", "{ca: " + dir + "}", "ca: reading the authorities: not a regular file"},
		{"an authority that is none", "{ca: " + write("text", "hunter2") + "}", "ca: reading the authorities: it holds no certificate in PEM"},
		{"a key for an authority", "{ca: " + certs.ClientKey + "}", "ca: reading the authorities: it holds no certificate in PEM"},
		{"an authority that is damaged", "{ca: " + write("bad", string(ca)+"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n") + "}", "ca: reading the authorities: x509: malformed certificate"},
		{"a large one", "{ca: " + write("large", strings.Repeat("a", maxPEM+1)) + "}", "ca: reading the authorities: the file is larger than 1048576 bytes"},
		{"no such certificate", fmt.Sprintf("{cert: %s/none, key: %s}", dir, certs.ClientKey), "cert: reading the certificate: no such file or directory"},
		{"a certificate that is none", fmt.Sprintf("{cert: %s/text, key: %s}", dir, certs.ClientKey), "cert: reading the certificate: it holds no certificate in PEM"},
		{"no such key", fmt.Sprintf("{cert: %s, key: %s/none}", certs.ClientCert, dir), "key: reading the private key: no such file or directory"},
		{"a key that is none", fmt.Sprintf("{cert: %s, key: %s/text}", certs.ClientCert, dir), "key: reading the private key: tls: failed to find any PEM data in key input"},
		{"the key of another", fmt.Sprintf("{cert: %s, key: %s}", certs.ClientCert, others.ClientKey), "key: reading the private key: tls: private key does not match public key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := with("redis", "{tls: "+tt.tls+"}")
			if tt.want == "" {
				c := mustParse(t, file, nil)
				if _, err := c.Redis.TLS.Config("redis.tls"); err != nil {
					t.Error(err)
				}
				return
			}
			want := []string{"f.yaml:4: redis.tls." + tt.want}
			if diff := cmp.Diff(want, violations(t, file, nil)); diff != "" {
				t.Errorf("unexpected violations (-want +got):\n%s", diff)
			}
		})
	}
	both := with("redis", fmt.Sprintf("{tls: {ca: %s/none, cert: %[1]s/none, key: %[1]s/none}}", dir))
	if got := violations(t, both, nil); len(got) != 2 {
		t.Errorf("not everything is said in one run: %q", got)
	}
}

// TestRenewedCertificate replaces our certificate while the settings are in use.
func TestRenewedCertificate(t *testing.T) {
	old, renewed := certificates(t), certificates(t)
	settings := TLS{CA: old.CA, Cert: old.ClientCert, Key: old.ClientKey, ServerName: "redis.internal"}
	c, err := settings.Config("redis.tls")
	if err != nil {
		t.Fatal(err)
	}
	if c.MinVersion != tls.VersionTLS12 || c.ServerName != "redis.internal" || c.InsecureSkipVerify {
		t.Errorf("settings %+v", c)
	}
	shown := func() *x509.Certificate {
		t.Helper()
		pair, err := c.GetClientCertificate(&tls.CertificateRequestInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf
	}
	before := shown()
	for from, to := range map[string]string{renewed.ClientCert: old.ClientCert, renewed.ClientKey: old.ClientKey} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if after := shown(); after.Equal(before) {
		t.Error("the old certificate is shown after it was renewed")
	}
	if err := os.Remove(old.ClientKey); err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetClientCertificate(&tls.CertificateRequestInfo{}); err == nil || !strings.Contains(err.Error(), "reading redis.tls.key: no such file") {
		t.Errorf("without a key: %v", err)
	}
	if err := os.Remove(old.CA); err != nil {
		t.Fatal(err)
	}
	if _, err := settings.Config("redis.tls"); err == nil || !strings.Contains(err.Error(), "reading redis.tls.ca: no such file") {
		t.Errorf("without an authority: %v", err)
	}
}
