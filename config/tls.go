package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

// maxPEM bounds a file of certificates, in bytes. All authorities of a usual system together
// take a quarter of it.
const maxPEM = 1 << 20

// String returns the settings, which contain no secrets. Without it, package fmt would print
// an address for the pointer in [Redis].
func (t *TLS) String() string {
	if t == nil {
		return "<nil>"
	}
	return fmt.Sprintf("%+v", *t)
}

// Config returns the settings for a client, with TLS 1.2 or newer. It reads the authorities
// immediately. Each connection reads the client's certificate again, so a renewed certificate
// needs no restart. Config blocks on the file system only. The result's callback, which runs
// in a handshake, also blocks on the file system only. Its errors begin with the path of the settings in
// the file.
func (t *TLS) Config(path string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		var err error
		if c.RootCAs, err = readAuthorities(t.CA); err != nil {
			return nil, fmt.Errorf("reading %s.ca: %w", path, err)
		}
	}
	if t.Cert != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, at, err := readPair(t.Cert, t.Key)
			if err != nil {
				return nil, fmt.Errorf("reading %s.%s: %w", path, at, err)
			}
			return pair, nil
		}
	}
	return c, nil
}

// checkFiles reads the files of TLS and reports errors by key. It skips empty file names.
func checkFiles(ca, cert, key string, report func(key, message string)) {
	if ca != "" {
		if _, err := readAuthorities(ca); err != nil {
			report("ca", "reading the authorities: "+oneLine(err.Error()))
		}
	}
	if cert != "" && key != "" {
		what := map[string]string{"cert": "certificate", "key": "private key"}
		if _, at, err := readPair(cert, key); err != nil {
			report(at, "reading the "+what[at]+": "+oneLine(err.Error()))
		}
	}
}

// Config returns the settings for a server, with TLS 1.2 or newer. The server accepts only
// clients with a certificate signed by one of the authorities. If t has names, the certificate
// must have one of them. Config reads the files once, and blocks on the file system only.
func (t *ListenTLS) Config() (*tls.Config, error) {
	authorities, err := readAuthorities(t.CA)
	if err != nil {
		return nil, fmt.Errorf("reading listen.tls.ca: %w", err)
	}
	pair, at, err := readPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("reading listen.tls.%s: %w", at, err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities, VerifyConnection: t.verifyName,
	}, nil
}

// verifyName returns an error unless the client's certificate has one of the names, exactly as
// written. Without names, it accepts every certificate.
func (t *ListenTLS) verifyName(state tls.ConnectionState) error {
	if len(t.Names) == 0 {
		return nil
	}
	client := state.PeerCertificates[0]
	has := slices.Clone(client.DNSNames)
	for _, uri := range client.URIs {
		has = append(has, uri.String())
	}
	if slices.ContainsFunc(has, func(name string) bool { return slices.Contains(t.Names, name) }) {
		return nil
	}
	return fmt.Errorf("the client's certificate has the names %q, none of which listen.tls.names has", has)
}

// readAuthorities reads certificates. One that it cannot parse is an error: a skipped authority
// would be noticed only at the first connection to its server.
func readAuthorities(file string) (*x509.CertPool, error) {
	text, err := readRegularFile(file, maxPEM)
	if err != nil {
		return nil, err
	}
	return parseCertificates(text)
}

// readPair reads a certificate and its private key. With an error, it returns the key of the
// faulty file: cert or key.
func readPair(certFile, keyFile string) (pair *tls.Certificate, at string, err error) {
	certificate, err := readRegularFile(certFile, maxPEM)
	if err != nil {
		return nil, "cert", err
	}
	if _, err := parseCertificates(certificate); err != nil {
		return nil, "cert", err
	}
	key, err := readRegularFile(keyFile, maxPEM)
	if err != nil {
		return nil, "key", err
	}
	p, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, "key", err
	}
	return &p, "", nil
}

func parseCertificates(text []byte) (*x509.CertPool, error) {
	pool, some := x509.NewCertPool(), false
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue // a private key beside its certificate, for example
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(c)
		some = true
	}
	if !some {
		return nil, errors.New("it holds no certificate in PEM")
	}
	return pool, nil
}
