package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process starts the server as a process of its own and returns it with the address of its ready line.
func process(t testing.TB, folder, timeout, grace string) (*exec.Cmd, string) {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0], "-bind", "127.0.0.1", "-port", "0", "-model-dir", folder, "-admin-token-file", secret, "-predict-token-file", "",
		"-tls-cert-file", "", "-tls-key-file", "", "-client-ca-file", "", "-max-body-bytes", "1048576",
		"-max-upload-bytes", "1048576", "-batch-rows", "64", "-batch-wait", "200us", "-request-timeout", timeout, "-shutdown-grace", grace)
	return launch(t, c, "endpoint")
}

// launch starts this program as one of the servers that TestMain knows.
func launch(t testing.TB, c *exec.Cmd, kind string) (*exec.Cmd, string) {
	t.Helper()
	c.Env = append(os.Environ(), "SMARTCACHE_TEST_SERVER="+kind)
	c.Stderr = t.Output()
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "ready: http://127.0.0.1:") {
		t.Fatalf("said %q, %v", line, err)
	}
	return c, strings.TrimSpace(strings.TrimPrefix(line, "ready: http://"))
}

// half sends a prediction without the end of its body and returns once the server is reading that body.
func half(t *testing.T, address, body string) (net.Conn, *bufio.Reader) {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	fmt.Fprintf(connection, "POST /json HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body))
	reader := bufio.NewReader(connection)
	for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} {
		if line, err := reader.ReadString('\n'); err != nil || line != want {
			t.Fatalf("answered %q, %v", line, err)
		}
	}
	_, err = io.WriteString(connection, body[:len(body)/2])
	if err != nil {
		t.Fatal(err)
	}
	return connection, reader
}

// refused returns once nothing listens at the address any more.
func refused(address string) {
	for {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		connection.Close()
	}
}

func TestSignalsLetRequestsFinish(t *testing.T) {
	for signal, status := range map[syscall.Signal]int{syscall.SIGTERM: 0, syscall.SIGINT: 130} {
		t.Run(signal.String(), func(t *testing.T) {
			c, address := process(t, modelDir(t, "reuse_v1"), "60s", "60s")
			row := expected(t, "reuse_v1").Inputs[0]
			body := strings.ReplaceAll(fmt.Sprintf(`{"model":"reuse_v1","values":%v}`, row), " ", ",")
			connection, reader := half(t, address, body)
			if err := c.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			refused(address)
			if _, err := io.WriteString(connection, body[len(body)/2:]); err != nil {
				t.Fatal(err)
			}
			var answer bytes.Buffer
			if _, err := answer.ReadFrom(reader); err != nil || !strings.HasPrefix(answer.String(), "HTTP/1.1 200 OK\r\n") {
				t.Errorf("answered %q, %v", answer.String(), err)
			}
			_ = c.Wait()
			if got := c.ProcessState.ExitCode(); got != status {
				t.Errorf("exit status %d, want %d", got, status)
			}
		})
	}
}

func TestGraceEnds(t *testing.T) {
	c, address := process(t, modelDir(t, "reuse_v1"), "60s", "50ms")
	_, reader := half(t, address, strings.Repeat(" ", 100))
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(reader); len(rest) > 0 {
		t.Errorf("answered %q, %v", rest, err)
	}
	_ = c.Wait()
	if got := c.ProcessState.ExitCode(); got != 1 {
		t.Errorf("exit status %d, want 1", got)
	}
}

// TestGraceEndsForWhoDoesNotRead stops a server in the middle of an answer that its client does not take.
func TestGraceEndsForWhoDoesNotRead(t *testing.T) {
	c, address := process(t, modelDir(t, "reuse_v1"), "60s", "50ms")
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	row := strings.ReplaceAll(fmt.Sprint(expected(t, "reuse_v1").Inputs[0]), " ", ",")
	many := []byte(strings.Repeat(plainRequest("/json", `{"model":"reuse_v1","rows":[`+row+strings.Repeat(","+row, 100)+`]}`), 10))
	for err == nil { // until nothing more fits: the server writes, and reads no more
		if err = connection.SetWriteDeadline(time.Now().Add(time.Second)); err == nil {
			_, err = connection.Write(many)
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	began := time.Now()
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("stopped after %v", took)
	}
}

func TestWrongFlags(t *testing.T) {
	folder := t.TempDir()
	empty := filepath.Join(folder, "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	right := map[string]string{"bind": "127.0.0.1", "port": "0", "model-dir": folder, "admin-token-file": "", "predict-token-file": "", "tls-cert-file": "",
		"tls-key-file": "", "client-ca-file": "", "max-body-bytes": "4096",
		"max-upload-bytes": "4096", "batch-rows": "64", "batch-wait": "0.0002s", "request-timeout": "5.0s", "shutdown-grace": "1m"}
	flags := func(name, value string) (args []string) {
		for n, v := range right {
			if n == name {
				v = value
			}
			if v != "-" {
				args = append(args, "-"+n, v)
			}
		}
		return args
	}
	if _, err := parseConfig(flags("", ""), io.Discard); err != nil {
		t.Fatalf("right flags: %v", err)
	}
	for _, c := range [][3]string{
		{"bind", "", "bind: must name an address"}, {"port", "65536", `port: must be a whole number from 0 to 65535, is "65536": pass for example -port 8083`},
		{"model-dir", "models", "model-dir: must be an absolute path"}, {"model-dir", folder + "/none", "model-dir: must be an existing folder"},
		{"admin-token-file", folder + "/none", "admin-token-file: must be a file"}, {"admin-token-file", empty, "admin-token-file: must hold one line"},
		{"max-body-bytes", "1k", "max-body-bytes: must be a whole number"}, {"max-upload-bytes", "0", "max-upload-bytes: must be"},
		{"batch-rows", "0", "batch-rows: must be a whole number from 1"}, {"batch-wait", "1s", "batch-wait: must be a time with its unit from 0s to 10ms"},
		{"request-timeout", "5", `request-timeout: must be a time with its unit from 1ms to 24h, is "5": pass for example -request-timeout 5s`},
		{"shutdown-grace", "-1s", "shutdown-grace: must be"}, {"port", "-", "port: must be given, is missing"},
	} {
		var stdout, stderr bytes.Buffer
		if status := run(flags(c[0], c[1]), &stdout, &stderr); status != 2 || stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), c[2]) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("-%s %q: exit status %d, said %q, want %q", c[0], c[1], status, stderr.String(), c[2])
		}
	}
	var stdout, stderr bytes.Buffer
	if status := run([]string{"-unknown", "1"}, &stdout, &stderr); status != 2 || !strings.Contains(stderr.String(), "-unknown") {
		t.Errorf("-unknown: %d %q", status, stderr.String())
	}
	if status := run([]string{"--help"}, &stdout, &stderr); status != 0 || !strings.Contains(stdout.String(), "-shutdown-grace") {
		t.Errorf("--help: %d %q", status, stdout.String())
	}
}
