package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

const (
	// credentialsEvery is how often the files are looked at. A change counts once two looks have found the same: a file that is being written
	// is not taken for what it will be.
	credentialsEvery = time.Second
	maxCredential    = 1 << 20 // bytes of a file
)

// credentials are what the files of credentialFiles say. They do not change: where the files do, others take their place.
type credentials struct {
	adminToken   string      // "": the administrative calls are refused
	predictToken string      // "": whoever reaches the port may predict
	tls          *tls.Config // nil: plain HTTP
	digest       [32]byte    // of the files
}

// credentialFiles are the paths of tokens and certificates, "" where there is none. Which there are never changes while the server runs, only
// what is in them.
type credentialFiles struct {
	adminToken, predictToken, certificate, key, authorities string
}

// contents are those of credentialFiles.
type contents struct {
	adminToken, predictToken, certificate, key, authorities []byte
}

// read returns what is in the files. An error names the first that can't be read; digest is of the contents and that error.
func (f *credentialFiles) read() (c contents, digest [32]byte, err error) {
	sum := sha256.New()
	for _, file := range []struct {
		flag, path string
		into       *[]byte
	}{
		{"admin-token-file", f.adminToken, &c.adminToken}, {"predict-token-file", f.predictToken, &c.predictToken},
		{"tls-cert-file", f.certificate, &c.certificate}, {"tls-key-file", f.key, &c.key}, {"client-ca-file", f.authorities, &c.authorities},
	} {
		if file.path == "" {
			continue
		}
		var problem error
		if *file.into, problem = readShort(file.path); problem != nil && err == nil {
			err = fmt.Errorf("%s: must be a file that this user can read, of at most %d bytes, or empty, is %q: %w", file.flag, maxCredential, file.path, pathless(problem))
		}
		fmt.Fprintf(sum, "%d %v\n", len(*file.into), problem)
		sum.Write(*file.into)
	}
	return c, [32]byte(sum.Sum(nil)), err
}

func readShort(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxCredential+1))
	if err == nil && len(text) > maxCredential {
		err = errors.New("it is longer")
	}
	return text, err
}

// load reads and checks the files. An error names the flag, its rule and what is wrong.
func (f *credentialFiles) load() (*credentials, [32]byte, error) {
	if (f.certificate == "") != (f.key == "") || f.certificate == "" && f.authorities != "" {
		return nil, [32]byte{}, fmt.Errorf("tls-cert-file, tls-key-file, client-ca-file: the first two must be given together, and the third only with them, are %q, %q, %q",
			f.certificate, f.key, f.authorities)
	}
	text, digest, err := f.read()
	if err != nil {
		return nil, digest, err
	}
	c := &credentials{digest: digest}
	if c.adminToken, err = tokenIn(f.adminToken, text.adminToken, "admin-token-file"); err != nil {
		return nil, digest, err
	}
	if c.predictToken, err = tokenIn(f.predictToken, text.predictToken, "predict-token-file"); err != nil {
		return nil, digest, err
	}
	if f.certificate == "" {
		return c, digest, nil
	}
	pair, err := tls.X509KeyPair(text.certificate, text.key)
	if err != nil {
		return nil, digest, fmt.Errorf("tls-cert-file, tls-key-file: must be a certificate and its key, PEM, are %q and %q: %w", f.certificate, f.key, err)
	}
	// HTTP/1.1 only: a prediction is one small request, and a cache keeps its connections.
	c.tls = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if f.authorities != "" {
		c.tls.ClientCAs, c.tls.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !c.tls.ClientCAs.AppendCertsFromPEM(text.authorities) {
			return nil, digest, fmt.Errorf("client-ca-file: must be a file with certificates, PEM, is %q", f.authorities)
		}
	}
	return c, digest, nil
}

// tokenIn is the token in the text of a file, "" where there is no file.
func tokenIn(path string, text []byte, flag string) (string, error) {
	found := strings.TrimSpace(string(text))
	if path != "" && !isToken(found) {
		return "", fmt.Errorf("%s: must hold one line of printable ASCII without spaces, is %q", flag, path)
	}
	return found, nil
}

func isToken(s string) bool {
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return s != ""
}

// secured is listener with TLS where there is a certificate. Each handshake has the credentials of its time; connections that are there go on.
func (s *server) secured(listener net.Listener) net.Listener {
	if s.credentials.Load().tls == nil {
		return listener
	}
	return tls.NewListener(listener, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return s.credentials.Load().tls, nil
	}})
}

// watchCredentials looks at the files until ctx ends.
func (s *server) watchCredentials(ctx context.Context) {
	if s.config.files == (credentialFiles{}) {
		return
	}
	l := &lookout{server: s, files: s.config.files, judged: s.credentials.Load().digest}
	ticker := time.NewTicker(credentialsEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.look()
		}
	}
}

// lookout knows what was found in the files. Not for use by two goroutines at once.
type lookout struct {
	server        *server
	files         credentialFiles
	found, judged [32]byte // digests: at the last look, and of what was last taken or refused
}

// look takes the credentials in the files where they have changed, and leaves those in use where they are no good; that is said once.
func (l *lookout) look() {
	s := l.server
	fresh, digest, err := l.files.load()
	same := digest == l.found
	if l.found = digest; !same || digest == l.judged {
		return
	}
	l.judged = digest
	if err != nil {
		s.metrics.credentials.Set(1)
		s.log.Error("tokens or certificates have changed and can't be used: those of before stay in use", "error", err)
		return
	}
	s.metrics.credentials.Set(0)
	s.credentials.Store(fresh)
	s.log.Info("tokens and certificates read anew")
}
