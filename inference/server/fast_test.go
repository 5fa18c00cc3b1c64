package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// raw is a connection on which requests are written as they are.
type raw struct {
	t testing.TB
	net.Conn
	*bufio.Reader
}

func (e *endpoint) dial() *raw {
	e.t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { connection.Close() })
	// The test's own limit: what is waited for below either comes at once or never.
	if err := connection.SetReadDeadline(time.Now().Add(60 * time.Second)); err != nil {
		e.t.Fatal(err)
	}
	return &raw{e.t, connection, bufio.NewReader(connection)}
}

func (c *raw) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.Conn, format, args...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *raw) answer() (*http.Response, string) {
	c.t.Helper()
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return response, string(body)
}

// mustEnd checks that the server has closed the connection without another answer.
func (c *raw) mustEnd() {
	c.t.Helper()
	if rest, err := io.ReadAll(c.Reader); err != nil || len(rest) > 0 {
		c.t.Errorf("the connection does not just end: %q %v", rest, err)
	}
}

// fast returns the connections that net/http has not taken over.
func (e *endpoint) fast() (conns []*fastConn) {
	l := e.server.connections
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		conns = append(conns, c)
	}
	return conns
}

func plainRequest(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

func TestBothWaysAnswerTheSame(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), func(c *config) { c.maxBodyBytes = 100_000 })
	row := strings.ReplaceAll(fmt.Sprint(expected(t, "reuse_v1").Inputs[0]), " ", ",")
	fast, slow := e.dial(), e.dial()
	for _, body := range []string{
		`{"model":"reuse_v1","values":` + row + `}`, `{"model":"reuse_v1","rows":[` + row + `,` + row + `]}`,
		`{"model":"reuse_v1","rows":[` + row + strings.Repeat(","+row, 200) + `]}`,
		`{"model":"reuse_v2","values":` + row + `}`, `{"model":"reuse_v1","values":[1]}`, `{`, ``,
	} {
		slow.send("POST /predict/json HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
		if body != "" {
			slow.send("%x\r\n%s\r\n", len(body), body)
		}
		slow.send("0\r\n\r\n")
		want, wantBody := slow.answer()
		fast.send("%s", plainRequest("/json", body))
		got, gotBody := fast.answer()
		if len(e.fast()) != 1 {
			t.Fatalf("%d connections that net/http has not taken over, want 1", len(e.fast()))
		}
		if got.StatusCode != want.StatusCode || gotBody != wantBody || got.Header.Get("Content-Type") != want.Header.Get("Content-Type") {
			t.Errorf("%.60s: answered %d %s %v, by net/http %d %s %v", body, got.StatusCode, gotBody, got.Header, want.StatusCode, wantBody, want.Header)
		}
		if date, err := http.ParseTime(got.Header.Get("Date")); err != nil || time.Since(date).Abs() > time.Hour {
			t.Errorf("Date: %v %v", got.Header, err)
		}
	}

	// Piece by piece, and several at once; then what is net/http's, on the same connection.
	whole := plainRequest("/json", `{"model":"reuse_v1","values":`+row+`}`)
	for i := range len(whole) {
		fast.send("%s", whole[i:i+1])
	}
	_, want := fast.answer()
	fast.send("%s", whole+whole+"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"+whole)
	for i, want := range []string{want, want, "{\"status\":\"alive\"}\n", want} {
		if response, body := fast.answer(); response.StatusCode != 200 || body != want {
			t.Errorf("answer %d: %d %s", i, response.StatusCode, body)
		}
	}
	if len(e.fast()) != 0 {
		t.Error("net/http has not taken over")
	}
}

func TestLimitsOfPlainRequests(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), func(c *config) { c.maxBodyBytes, c.requestTimeout = 2048, 2*time.Second })
	for _, c := range []struct {
		what, text string
		status     int
	}{
		{"a long body", plainRequest("/json", strings.Repeat(" ", 3000)), 413},
		{"a body that does not come", "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{", 408},
		{"a long header", "POST /json HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 100_000), 431},
		{"half a line", "POST /js", 400},
		{"two lengths", "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 400},
		{"no host", "POST /json HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 400},
	} {
		connection := e.dial()
		_, _ = io.WriteString(connection.Conn, c.text) // refused before its end
		if response, _ := connection.answer(); response.StatusCode != c.status {
			t.Errorf("%s: answered %d, want %d", c.what, response.StatusCode, c.status)
		}
	}
	e.dial().mustEnd()
}

func TestStopEndsPlainConnections(t *testing.T) {
	// After five seconds net/http takes a connection for one that will never send a request.
	for name, age := range map[string]time.Duration{"young": 0, "old": 6 * time.Second} {
		t.Run(name, func(t *testing.T) { stopEndsPlainConnections(t, age) })
	}
}

func stopEndsPlainConnections(t *testing.T, age time.Duration) {
	e := start(t, modelDir(t, "reuse_v1"), func(c *config) { c.shutdownGrace = 60 * time.Second })
	want := expected(t, "reuse_v1")
	whole := plainRequest("/json", `{"model":"reuse_v1","values":`+strings.ReplaceAll(fmt.Sprint(want.Inputs[0]), " ", ",")+`}`)
	idle, busy, inHeader := e.dial(), e.dial(), e.dial()
	for _, c := range []*raw{idle, busy, inHeader} {
		c.send("%s", whole)
		c.answer()
	}
	inRequest := func(want int) {
		for in := -1; in != want; runtime.Gosched() {
			in = 0
			for _, c := range e.fast() {
				if c.inRequest.Load() {
					in++
				}
			}
		}
	}
	inRequest(0) // an answer comes before its connection is out of the request
	time.Sleep(age)
	busy.send("%s", whole[:len(whole)-5])
	inHeader.send("%s", whole[:5])
	inRequest(2)
	e.stop()
	idle.mustEnd()
	for c, rest := range map[*raw]string{busy: whole[len(whole)-5:], inHeader: whole[5:]} {
		c.send("%s", rest)
		if response, body := c.answer(); response.StatusCode != 200 || !response.Close {
			t.Errorf("answered %d %s %v", response.StatusCode, body, response.Header)
		}
		c.mustEnd()
	}
}

// TestConnectionFromBeforeTheStop was taken just before the listener was closed, and is seen after those that there were have been stopped.
func TestConnectionFromBeforeTheStop(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := newFastListener(plain, nil)
	defer listener.Close()
	client, err := net.Dial("tcp", plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	listener.stop()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.(*fastConn).Conn.Close()
	if !conn.(*fastConn).stopping.Load() {
		t.Error("it goes on")
	}
	if _, err := conn.(*fastConn).Conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it waits for a request: %v", err)
	}
}

// FuzzHead holds the parser of headers against net/http: a request that fastConn takes is the same one to net/http.
func FuzzHead(f *testing.F) {
	s := &server{}
	for _, path := range []string{"/json", "/predict/json"} {
		s.predictions = append(s.predictions, &route{path: path, line: "POST " + path + " HTTP/1.1"})
	}
	for seed, want := range map[string]verdict{
		"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}":                                        plain,
		"POST /predict/json HTTP/1.1\r\nhOST:x:80\r\nCONTENT-length:\t02 \r\nConnection: Keep-Alive\r\n\r\n{}": plain,
		"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nAccept: */*\r\nUser-Agent: a b\r\n\r\n{}":      plain,
		"":                        incomplete,
		"POST /js":                incomplete,
		"POST /json HTTP/1.1\r":   incomplete,
		"POST /json HTTP/1.1\r\n": incomplete,
		"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r":                                   incomplete,
		"GET /json HTTP/1.1\r\nHost: x\r\n\r\n":                                                       other,
		"POST /json HTTP/1.0\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}":                               other,
		"POST /json?x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}":                             other,
		"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}":                             other,
		"POST /json HTTP/1.1\r\n\r\n":                                                                 other,
		"POST /json HTTP/1.1\r\nHost: x\r\n\r\n":                                                      other,
		"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\n":                                other,
		"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}":          other,
		"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}": other,
		"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n{}":       other,
		"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}":          other,
		"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length : 2\r\n\r\n{}":                              other,
		"POST /json HTTP/1.1\r\nHost: x\r\n Content-Length: 2\r\n\r\n{}":                              other,
		"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nX: a\n\r\n{}":                         other,
		"POST /json HTTP/1.1\nHost: x\nContent-Length: 2\n\n{}":                                       other,
		"POST /json HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", maxHeaderBytes):                 other,
	} {
		if _, got := s.parseHead([]byte(seed)); got != want {
			f.Errorf("%.100q: verdict %d, want %d", seed, got, want)
		}
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		h, verdict := s.parseHead(text)
		if verdict != plain {
			return
		}
		reader := bufio.NewReaderSize(bytes.NewReader(text), len(text)+16)
		r, err := http.ReadRequest(reader)
		if err != nil {
			t.Fatalf("%q was taken; net/http: %v", text, err)
		}
		if r.Method != http.MethodPost || r.URL.Path != h.route.path || r.URL.RawQuery != "" || r.ContentLength != int64(h.length) ||
			len(r.TransferEncoding) > 0 || r.Close || reader.Buffered() != len(text)-h.size || r.ProtoMinor != 1 {
			t.Fatalf("%q was taken as %d bytes for %s after %d; net/http: %+v", text, h.length, h.route.path, h.size, r)
		}
	})
}
