package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// signer is a certificate authority of a test.
type signer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

// certificate makes one that `by` signs (nil: itself, an authority), in two files.
func certificate(t *testing.T, by *signer, name string, ends time.Time) (s *signer, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	number, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: number, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: ends,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	parent, signing := template, key
	if by != nil {
		parent, signing = by.cert, by.key
	} else {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signing)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	certFile, keyFile = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: raw}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &signer{t, cert, key, certFile}, certFile, keyFile
}

func TestTLSVerifiesClients(t *testing.T) {
	later := time.Now().Add(time.Hour)
	ca, caFile, _ := certificate(t, nil, "CA", later)
	stranger, _, _ := certificate(t, nil, "CA", later) // of the same name
	_, serverCert, serverKey := certificate(t, ca, "server", later)
	e := start(t, modelDir(t, "reuse_v1"), func(c *config) {
		c.files = credentialFiles{certificate: serverCert, key: serverKey, authorities: caFile}
		var err error
		if c.credentials, _, err = c.files.load(); err != nil {
			t.Fatal(err)
		}
	})
	row := strings.ReplaceAll(fmt.Sprint(expected(t, "reuse_v1").Inputs[0]), " ", ",")
	ask := func(trusted *signer, version uint16, certFile, keyFile string) (int, error) {
		t.Helper()
		settings := &tls.Config{RootCAs: x509.NewCertPool(), MaxVersion: version}
		settings.RootCAs.AddCert(trusted.cert)
		if certFile != "" {
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			if err != nil {
				t.Fatal(err)
			}
			// Sent whoever the server says that it takes.
			settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: settings}}
		defer client.CloseIdleConnections()
		response, err := client.Post(e.url+"/json", "application/json", strings.NewReader(`{"model":"reuse_v1","values":`+row+`}`))
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, err
	}
	_, good, goodKey := certificate(t, ca, "client", later)
	_, strange, strangeKey := certificate(t, stranger, "client", later)
	_, old, oldKey := certificate(t, ca, "client", time.Now().Add(-time.Hour))
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		if status, err := ask(ca, version, good, goodKey); status != 200 || err != nil {
			t.Errorf("the right certificate: %d %v", status, err)
		}
		for what, files := range map[string][2]string{"none": {}, "another authority's": {strange, strangeKey}, "expired": {old, oldKey}} {
			if status, err := ask(ca, version, files[0], files[1]); err == nil {
				t.Errorf("client certificate %s: answered %d", what, status)
			}
		}
		if status, err := ask(stranger, version, good, goodKey); err == nil {
			t.Errorf("a client that does not trust the server was answered %d", status)
		}
	}
	if status, err := ask(ca, tls.VersionTLS11, good, goodKey); err == nil {
		t.Errorf("TLS 1.1: answered %d", status)
	}
	plain := start(t, modelDir(t), nil)
	if status, _ := plain.call("GET", "/healthz", nil); status != 200 {
		t.Errorf("plain HTTP: %d", status)
	}

	for _, files := range [][3]string{{serverCert, "", ""}, {"", serverKey, ""}, {"", "", caFile}, {serverCert, goodKey, ""}, {serverCert, serverKey, serverKey}} {
		if _, _, err := (&credentialFiles{certificate: files[0], key: files[1], authorities: files[2]}).load(); err == nil {
			t.Errorf("files %v were taken", files)
		}
	}
}

func TestPredictionsMayNeedAToken(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), func(c *config) { c.credentials.predictToken = "battery-staple" })
	row := strings.ReplaceAll(fmt.Sprint(expected(t, "reuse_v1").Inputs[0]), " ", ",")
	body := `{"model":"reuse_v1","values":` + row + `}`
	for header, want := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer ": 401, "battery-staple": 401, "Bearer battery-staple": 200, "bearer " + token: 200} {
		for _, chunked := range []bool{false, true} {
			var reader io.Reader = strings.NewReader(body)
			if chunked {
				reader = struct{ io.Reader }{reader}
			}
			if status, answer := e.call("POST", "/json", reader, "Authorization", header); status != want {
				t.Errorf("Authorization %q, chunked %v: answered %d %s, want %d", header, chunked, status, answer, want)
			}
		}
	}
	status, answer := e.call("DELETE", "/delete/reuse_v1", nil, "Authorization", "Bearer battery-staple")
	mustFail(t, status, answer, 401, "admin_token_file")
	if status, _ := e.call("GET", "/readyz", nil); status != 200 {
		t.Errorf("/readyz: %d", status)
	}
}

func TestAliases(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1", "reuse_v2"), nil)
	one, two := expected(t, "reuse_v1"), expected(t, "reuse_v2")
	set := func(body string) (int, string) { return e.admin("POST", "/params", strings.NewReader(body)) }
	status, body := e.call("POST", "/json", strings.NewReader(`{"values":[1]}`))
	mustFail(t, status, body, 400, "no default model")
	for _, text := range []string{`{"name":"reuse_v1"}`, `{"name":"reuse_v1","alias":"champion","labels":"as in params.json"}`} {
		if status, body := set(text); status != 200 {
			t.Fatalf("%s: %d %s", text, status, body)
		}
	}
	e.mustPredict("", one.Inputs[0], one.Outputs[0])
	e.mustPredict("champion", one.Inputs[0], one.Outputs[0])
	if status, body := set(`{"name":"reuse_v2","alias":"champion"}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	e.mustPredict("champion", two.Inputs[0], two.Outputs[0])
	e.mustPredict("", one.Inputs[0], one.Outputs[0])

	for text, want := range map[string]int{`{"name":"reuse_v9"}`: 404, `{"name":"reuse_v1","alias":"../x"}`: 400, `{"name":"reuse_v1","alias":"reuse_v2"}`: 409,
		`{"alias":"champion"}`: 400, `[]`: 400, ``: 400} {
		if status, body := set(text); status != want {
			t.Errorf("%s: answered %d %s, want %d", text, status, body, want)
		}
	}
	status, body = e.call("POST", "/params", strings.NewReader(`{"name":"reuse_v2"}`))
	mustFail(t, status, body, 401, "Authorization")
	status, body = e.admin("DELETE", "/delete/reuse_v2", nil)
	mustFail(t, status, body, 409, `"champion"`)
	status, body = e.admin("POST", "/upload", archive(t, packed(t, "reuse_v1", "champion", nil)...))
	mustFail(t, status, body, 409, "alias")

	// A server that starts there has them too.
	again := start(t, e.folder, func(c *config) { c.credentials.adminToken = "" })
	again.mustPredict("champion", two.Inputs[0], two.Outputs[0])
	again.mustPredict("", one.Inputs[0], one.Outputs[0])
	if status, body := set(`{"name":"","alias":"champion"}`); status != 200 {
		t.Errorf("removed: %d %s", status, body)
	}
	status, body = e.predict("champion", one.Inputs[0])
	mustFail(t, status, body, 404, "champion")
	if status, body := e.admin("DELETE", "/delete/reuse_v2", nil); status != 200 {
		t.Errorf("delete: %d %s", status, body)
	}
}

func TestStatus(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), nil)
	want := expected(t, "reuse_v1")
	e.mustPredict("reuse_v1", want.Inputs[0], want.Outputs[0])
	e.predict("reuse_v9", want.Inputs[0])
	status, body := e.call("GET", "/status", nil)
	var got struct {
		Ready            bool
		Models           []string
		Requests, Errors float64
		CPU              float64 `json:"cpu_s"`
		Memory           float64 `json:"memory_bytes"`
		Load             []string
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(body))).Decode(&got); status != 200 || err != nil || !got.Ready || fmt.Sprint(got.Models) != "[reuse_v1]" ||
		got.Requests != 2 || got.Errors != 1 || got.CPU <= 0 || got.Memory < 1e6 || len(got.Load) == 0 {
		t.Errorf("answered %d %s %v", status, body, err)
	}
}

// replace writes a file as who renews a secret does: beside it, then over it.
func replace(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTokensAreReadAnew changes the files of a server that is not restarted, and looks at them as its clock does.
func TestTokensAreReadAnew(t *testing.T) {
	folder := t.TempDir()
	files := credentialFiles{adminToken: filepath.Join(folder, "admin"), predictToken: filepath.Join(folder, "predict")}
	replace(t, files.adminToken, "admin-1\n")
	replace(t, files.predictToken, "predict-1\n")
	first, digest, err := files.load()
	if err != nil {
		t.Fatal(err)
	}
	e := start(t, modelDir(t, "reuse_v1"), func(c *config) { c.credentials = first })
	l := &lookout{server: e.server, files: files, judged: digest}
	row := strings.ReplaceAll(fmt.Sprint(expected(t, "reuse_v1").Inputs[0]), " ", ",")
	good := func(token string) bool {
		status, _ := e.call("POST", "/json", strings.NewReader(`{"model":"reuse_v1","values":`+row+`}`), "Authorization", "Bearer "+token)
		return status == 200
	}
	administers := func(token string) bool {
		status, _ := e.call("POST", "/params", strings.NewReader(`{"name":"reuse_v1"}`), "Authorization", "Bearer "+token)
		return status == 200
	}
	check := func(what, predict, admin, refused string, lines int64) {
		t.Helper()
		before := e.lines.Load()
		for range 5 {
			l.look()
		}
		if said := e.lines.Load() - before; said != lines {
			t.Errorf("%s: said %d lines, want %d", what, said, lines)
		}
		for _, token := range []string{"predict-1", "predict-2", "predict-3"} {
			if good(token) != (token == predict) {
				t.Errorf("%s: the token for predictions is not %s", what, predict)
			}
		}
		for _, token := range []string{"admin-1", "admin-2"} {
			if administers(token) != (token == admin) {
				t.Errorf("%s: the administrator's token is not %s", what, admin)
			}
		}
		if _, page := e.call("GET", "/metrics", nil); !strings.Contains(page, "smartcache_endpoint_credentials_refused "+refused+"\n") {
			t.Errorf("%s: the metric is not %s", what, refused)
		}
	}
	check("at start", "predict-1", "admin-1", "0", 0)
	replace(t, files.predictToken, "predict-2\n")
	check("another one", "predict-2", "admin-1", "0", 1)

	// While it is written it is another one at each look, and none of them counts.
	for _, half := range []string{"p", "predict", "predict-"} {
		replace(t, files.predictToken, half)
		l.look()
		if !good("predict-2") || good(half) {
			t.Errorf("half a token, %s, is in use", half)
		}
	}
	replace(t, files.predictToken, "predict-3")
	check("written", "predict-3", "admin-1", "0", 1)

	for what, text := range map[string]string{"empty": "", "two lines": "a\nb\n", "too long": strings.Repeat("x", maxCredential+1)} {
		replace(t, files.adminToken, text)
		check(what, "predict-3", "admin-1", "1", 1)
	}
	if err := os.Remove(files.adminToken); err != nil {
		t.Fatal(err)
	}
	replace(t, files.predictToken, "predict-1")
	check("gone", "predict-3", "admin-1", "1", 1)
	replace(t, files.adminToken, "admin-2")
	check("back", "predict-1", "admin-2", "0", 1)
}

// TestCertificatesAreReadAnew renews the certificate and the authority of a server that is not restarted; its own clock finds out.
func TestCertificatesAreReadAnew(t *testing.T) {
	later := time.Now().Add(time.Hour)
	ca, caFile, _ := certificate(t, nil, "CA", later)
	other, otherFile, _ := certificate(t, nil, "other CA", later)
	_, cert1, key1 := certificate(t, ca, "one", later)
	_, cert2, key2 := certificate(t, other, "two", later)
	folder := t.TempDir()
	files := credentialFiles{certificate: filepath.Join(folder, "cert"), key: filepath.Join(folder, "key"), authorities: filepath.Join(folder, "ca")}
	replace(t, files.certificate, content(t, cert1))
	replace(t, files.key, content(t, key1))
	replace(t, files.authorities, content(t, caFile))
	e := start(t, modelDir(t, "reuse_v1"), func(c *config) {
		c.files = files
		var err error
		if c.credentials, _, err = files.load(); err != nil {
			t.Fatal(err)
		}
	})
	// serves says whose certificate the server shows to a client with this one; "" where it does not take the client.
	serves := func(certFile, keyFile string) string {
		t.Helper()
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AddCert(ca.cert)
		pool.AddCert(other.cert)
		settings := &tls.Config{RootCAs: pool, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: settings}}
		defer client.CloseIdleConnections()
		response, err := client.Get(e.url + "/healthz")
		if err != nil {
			return ""
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != 200 {
			t.Errorf("answered %d %v", response.StatusCode, err)
		}
		return response.TLS.PeerCertificates[0].Subject.CommonName
	}
	if got := serves(cert1, key1); got != "one" {
		t.Fatalf("at start the server is %q", got)
	}
	before := e.lines.Load()
	replace(t, files.authorities, content(t, otherFile))
	replace(t, files.certificate, content(t, cert2)) // without its key
	for e.lines.Load() == before {
		if got := serves(cert1, key1); got != "one" {
			t.Fatalf("with half of a new pair the server is %q", got)
		}
	}
	replace(t, files.key, content(t, key2))
	for serves(cert2, key2) != "two" { // the test's own time limit ends it
	}
	if got := serves(cert1, key1); got != "" {
		t.Errorf("a client of the authority of before is answered by %q", got)
	}
	for e.lines.Load()-before < 2 { // taken before it is said
		time.Sleep(time.Millisecond)
	}
	if said := e.lines.Load() - before; said != 2 {
		t.Errorf("said %d lines, want 2", said)
	}
}
