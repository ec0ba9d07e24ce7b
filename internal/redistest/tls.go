package redistest

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
	"os"
	"path/filepath"
	"time"
)

// launchTLS starts a server that speaks TLS only, with a certificate of an authority made up for it, and wants one of
// its clients.
func (t *Topology) launchTLS() error {
	certificate, pool, err := makeCertificate(t.dir)
	if err != nil {
		return fmt.Errorf("redistest: certificate: %w", err)
	}
	s, err := launchAt(t.dir, func(s *Server) {
		s.secret = &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
		s.args = []string{
			"--tls-cert-file", filepath.Join(t.dir, "cert.pem"), "--tls-key-file", filepath.Join(t.dir, "key.pem"),
			"--tls-ca-cert-file", filepath.Join(t.dir, "ca.pem"), "--tls-auth-clients", "yes", "--requirepass", "operator",
		}
	})
	if err == nil {
		t.servers = append(t.servers, s)
	}
	return err
}

// makeCertificate writes an authority and a certificate of it for 127.0.0.1 into dir.
func makeCertificate(dir string) (tls.Certificate, *x509.CertPool, error) {
	var none tls.Certificate
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return none, nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(240 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return none, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return none, nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "redis"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return none, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return none, nil, err
	}
	files := map[string]*pem.Block{
		"ca.pem": {Type: "CERTIFICATE", Bytes: caDER}, "cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: secret},
	}
	for name, block := range files {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return none, nil, err
		}
	}
	pool := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(caDER)
	if err != nil {
		return none, nil, err
	}
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool, nil
}
