package testbed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// tlsCertFlag is the argument by which a redis-server is known to serve TLS.
const tlsCertFlag = "--tls-cert-file"

// Certificates are the files of an authority and of what it signed, in PEM: a
// certificate for servers on loopback (127.0.0.1, ::1, localhost and
// [ServerName]) and one for clients. They are valid for a day.
type Certificates struct {
	CA                    string
	ServerCert, ServerKey string
	ClientCert, ClientKey string
}

// ServerName is a name that the server's certificate has and no resolver knows.
const ServerName = "redis.test"

// ClientName is a name that the client's certificate has. It has spiffe://testbed/client, too.
const ClientName = "client.test"

// Certificates returns the bed's certificates, which it makes the first time.
func (b *Bed) Certificates() (*Certificates, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.certs != nil {
		return b.certs, nil
	}
	certs, err := NewCertificates(b.path("certificates"))
	if err != nil {
		return nil, err
	}
	b.certs = certs
	return certs, nil
}

// NewCertificates makes an authority and its certificates in a directory, which
// it makes too. Nobody trusts it but who is told to.
func NewCertificates(dir string) (*Certificates, error) {
	certs, err := newCertificates(dir)
	if err != nil {
		return nil, fmt.Errorf("making certificates: %w", err)
	}
	return certs, nil
}

func newCertificates(dir string) (*Certificates, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file := func(name string) string { return filepath.Join(dir, name+".pem") }
	c := &Certificates{
		CA:         file("ca"),
		ServerCert: file("server"), ServerKey: file("server-key"),
		ClientCert: file("client"), ClientKey: file("client-key"),
	}
	authority := template("testbed authority")
	authority.IsCA, authority.BasicConstraintsValid = true, true
	authority.KeyUsage = x509.KeyUsageCertSign
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if err := sign(c.CA, authority, authority, signer, signer); err != nil {
		return nil, err
	}
	server := template("testbed server")
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	server.DNSNames = []string{"localhost", ServerName}
	client := template("testbed client")
	client.DNSNames = []string{ClientName}
	client.URIs = []*url.URL{{Scheme: "spiffe", Host: "testbed", Path: "/client"}}
	for _, leaf := range []struct {
		template  *x509.Certificate
		cert, key string
	}{
		{server, c.ServerCert, c.ServerKey},
		{client, c.ClientCert, c.ClientKey},
	} {
		if err := issue(leaf.cert, leaf.key, leaf.template, authority, signer); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// template returns what all certificates have in common. Servers of a Redis are
// each other's clients, so each may be used for both.
func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// issue makes a key and has its certificate signed.
func issue(certFile, keyFile string, template, authority *x509.Certificate, signer *ecdsa.PrivateKey) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(keyFile, "PRIVATE KEY", der); err != nil {
		return err
	}
	return sign(certFile, template, authority, key, signer)
}

func sign(file string, template, authority *x509.Certificate, key, signer *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), signer)
	if err != nil {
		return err
	}
	return writePEM(file, "CERTIFICATE", der)
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// Args returns the arguments that make a redis-server serve TLS, and nothing
// else, to clients with a certificate of the same authority; replicas and cluster
// nodes speak it among themselves as well. Only the bed's own are of use to its
// servers.
func (c *Certificates) Args() []string {
	return []string{
		tlsCertFlag, c.ServerCert, "--tls-key-file", c.ServerKey, "--tls-ca-cert-file", c.CA,
		"--tls-replication", "yes", "--tls-cluster", "yes",
	}
}

// ClientConfig returns the settings of a client with the client certificate.
func (c *Certificates) ClientConfig() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.ClientCert, c.ClientKey)
	if err != nil {
		return nil, fmt.Errorf("reading the client certificate: %w", err)
	}
	text, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the authority: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
