package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

// maxPEM bounds a file of certificates, in bytes: all of the authorities that a
// system comes with take a quarter of it.
const maxPEM = 1 << 20

// String returns the settings, which are no secret: a pointer would be printed as
// one.
func (t *TLS) String() string {
	if t == nil {
		return "<nil>"
	}
	return fmt.Sprintf("%+v", *t)
}

// Config returns the settings for a client, TLS 1.2 or newer. The authorities are
// read now; our own certificate is read again for each connection, so that one
// that was renewed is used without a restart. It blocks on the file system only,
// and so does every handshake with the result.
func (t *TLS) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		var err error
		if c.RootCAs, err = readAuthorities(t.CA); err != nil {
			return nil, fmt.Errorf("reading redis.tls.ca: %w", err)
		}
	}
	if t.Cert != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, at, err := readPair(t.Cert, t.Key)
			if err != nil {
				return nil, fmt.Errorf("reading redis.tls.%s: %w", at, err)
			}
			return pair, nil
		}
	}
	return c, nil
}

// checkFiles reports what is wrong with the files of TLS, by the key that names them. Those
// with an empty name are left out.
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

// Config returns the settings for a server, TLS 1.2 or newer, that serves only clients
// whose certificate one of the authorities has signed, and which has one of the names if
// there are any. It reads the files as they are now,
// and blocks on the file system only.
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

// verifyName wants one of the names in the client's certificate, as it stands there.
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

// readAuthorities reads certificates, all of which have to be ones: an authority
// that is left out is missed when its server comes up.
func readAuthorities(file string) (*x509.CertPool, error) {
	text, err := readRegularFile(file, maxPEM)
	if err != nil {
		return nil, err
	}
	certificates, err := parseCertificates(text)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range certificates {
		pool.AddCert(c)
	}
	return pool, nil
}

// readPair reads a certificate and its key. With an error it returns the setting
// that is to blame.
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

func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue // a private key beside its certificate, say
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certificates = append(certificates, c)
	}
	if len(certificates) == 0 {
		return nil, errors.New("it holds no certificate in PEM")
	}
	return certificates, nil
}
