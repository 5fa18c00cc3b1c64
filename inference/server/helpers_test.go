package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const token = "correct-horse"

// TestMain lets this program be the server itself, for the tests that need a process of their own, or one whose handler does nothing.
func TestMain(m *testing.M) {
	switch os.Getenv("SMARTCACHE_TEST_SERVER") {
	case "endpoint":
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	case "nothing":
		os.Exit(serveNothing(os.Stdout))
	}
	os.Exit(m.Run())
}

// bundles is the folder of what testdata/make_model.py makes. Keras takes ten seconds for it, so it is kept under build/ by the script's hash.
var bundles = sync.OnceValues(func() (string, error) {
	script, err := os.ReadFile("testdata/make_model.py")
	if err != nil {
		return "", err
	}
	folder, err := filepath.Abs(fmt.Sprintf("../../build/endpoint-models/%.8x", sha256.Sum256(script)))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	python := os.Getenv("SMARTCACHE_PYTHON")
	if python == "" {
		return "", fmt.Errorf("SMARTCACHE_PYTHON is not set: run the tests with build.sh --test PYTHON")
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(folder), "making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	if output, err := exec.Command(python, "testdata/make_model.py", filepath.Join(fresh, "models")).CombinedOutput(); err != nil {
		return "", fmt.Errorf("make_model.py: %w: %s", err, output)
	}
	// Another test run may have been faster.
	if err := os.Rename(filepath.Join(fresh, "models"), folder); err != nil {
		if _, missing := os.Stat(folder); missing != nil {
			return "", err
		}
	}
	return folder, nil
})

func bundlesFolder(t testing.TB) string {
	t.Helper()
	folder, err := bundles()
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// expected is what Keras answers for rows of a model that are not its golden ones.
func expected(t testing.TB, name string) golden {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(bundlesFolder(t), "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]golden
	if err := json.Unmarshal(content, &all); err != nil {
		t.Fatal(err)
	}
	return all[name]
}

// modelDir is a folder with copies of the named models.
func modelDir(t testing.TB, names ...string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range names {
		if err := os.CopyFS(filepath.Join(folder, name), os.DirFS(filepath.Join(bundlesFolder(t), name))); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// endpoint is a server under test.
type endpoint struct {
	t      testing.TB
	url    string
	folder string
	server *server
	stop   func()
	lines  *lineCounter // of the log
}

// lineCounter counts what is written, and keeps it: a log handler writes each line at once.
type lineCounter struct {
	atomic.Int64
	mu   sync.Mutex
	text []byte
}

func (l *lineCounter) Write(p []byte) (int, error) {
	l.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

// with returns the lines that hold all of these.
func (l *lineCounter) with(parts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(string(l.text)) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			found = append(found, line)
		}
	}
	return found
}

// start serves the models of folder; change may alter the configuration.
func start(t testing.TB, folder string, change func(*config)) *endpoint {
	t.Helper()
	c := config{bind: "127.0.0.1", modelDir: folder, credentials: &credentials{adminToken: token}, maxBodyBytes: 1 << 20, maxUploadBytes: 16 << 20,
		batching: batching{64, 200 * time.Microsecond}, requestTimeout: 10 * time.Second, shutdownGrace: 10 * time.Second}
	if change != nil {
		change(&c)
	}
	lines := &lineCounter{}
	s, err := newServer(c, slog.New(slog.NewJSONHandler(io.MultiWriter(t.Output(), lines), nil)))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.run(ctx, listener, func() { close(ready) }) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.models.close()
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	return &endpoint{t, address(listener, c.credentials.tls != nil), folder, s, stop, lines}
}

// call sends a request and returns the status and body of the answer. header holds names and values by turns.
func (e *endpoint) call(method, path string, body io.Reader, header ...string) (int, string) {
	e.t.Helper()
	request, err := http.NewRequest(method, e.url+path, body)
	if err != nil {
		e.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		e.t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// mustFail checks that an answer is the status with a JSON error that says what.
func mustFail(t testing.TB, status int, body string, wantStatus int, want string) {
	t.Helper()
	var answer map[string]string
	err := json.Unmarshal([]byte(body), &answer)
	if status != wantStatus || err != nil || len(answer) != 1 || !strings.Contains(answer["error"], want) {
		t.Errorf("answered %d %s, want %d with an error that says %q", status, body, wantStatus, want)
	}
}

func (e *endpoint) admin(method, path string, body io.Reader, header ...string) (int, string) {
	e.t.Helper()
	return e.call(method, path, body, append(header, "Authorization", "Bearer "+token)...)
}

// predict asks for one row in the order of the model's features.
func (e *endpoint) predict(name string, row []float32) (int, string) {
	e.t.Helper()
	body, err := json.Marshal(map[string]any{"model": name, "values": row})
	if err != nil {
		e.t.Fatal(err)
	}
	return e.call("POST", "/json", bytes.NewReader(body))
}

// mustPredict checks that the answer for a row is the one of Keras.
func (e *endpoint) mustPredict(name string, row, want []float32) {
	e.t.Helper()
	status, body := e.predict(name, row)
	var got []float32
	if err := json.Unmarshal([]byte(body), &got); status != 200 || err != nil || !near(got, want) {
		e.t.Errorf("model %s answered %d %s, Keras %v", name, status, body, want)
	}
}

func near(got, want []float32) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if d := got[i] - want[i]; !(d <= 1e-6 && d >= -1e-6) {
			return false
		}
	}
	return true
}

// entry is one of an archive.
type entry struct {
	name, content string
	kind          byte
	link          string
}

func archive(t testing.TB, entries ...entry) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: 0o644, Size: int64(len(e.content))}
		if e.kind == 0 {
			header.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// sparse is an archive of one file that has one byte and says that it is so many, the others zero (GNU's format 0.1, which no writer has here).
func sparse(t testing.TB, name string, size int64) []byte {
	t.Helper()
	var records strings.Builder
	for _, field := range []string{fmt.Sprintf("GNU.sparse.size=%d", size), "GNU.sparse.numblocks=1", "GNU.sparse.map=0,1"} {
		length := len(field) + 4 // of two digits, a space and the end of the line
		fmt.Fprintf(&records, "%d %s\n", length, field)
	}
	raw := archive(t, entry{name: "pax", content: records.String()}, entry{name: name, content: "x"}).Bytes()
	header := raw[:512]
	header[156] = tar.TypeXHeader
	copy(header[148:156], "        ")
	sum := 0
	for _, each := range header {
		sum += int(each)
	}
	copy(header[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return raw
}

// packed is the model `from` as an upload under another name, each file passed through edit (nil: as it is; an empty result leaves it out).
func packed(t testing.TB, from, name string, edit func(file, content string) string) []entry {
	t.Helper()
	folder := filepath.Join(bundlesFolder(t), from)
	var entries []entry
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		content := string(raw)
		if relative == "params.json" || relative == "bundle.json" {
			content = strings.ReplaceAll(content, `"`+from+`"`, `"`+name+`"`)
		}
		if edit != nil {
			content = edit(relative, content)
		}
		if content != "" {
			entries = append(entries, entry{name: name + "/" + relative, content: content})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func gzipped(t testing.TB, content *bytes.Buffer) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(content.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// files lists all that lies in a folder, with contents.
func files(t testing.TB, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Type().IsRegular() {
			content, err := os.ReadFile(path)
			all[path] = string(content)
			return err
		}
		all[path] = d.Type().String()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
