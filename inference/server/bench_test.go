package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// client is one connection that sends the same prediction over and over: net/http's own client would cost more than what is measured.
type client struct {
	net.Conn
	*bufio.Reader
	request []byte
}

func dial(b *testing.B, url, body string) *client {
	b.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { connection.Close() })
	request := fmt.Appendf(nil, "POST /json HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return &client{connection, bufio.NewReader(connection), request}
}

// ask sends the request and reads the answer, which must be a 200 with a Content-Length.
func (c *client) ask() error {
	if _, err := c.Conn.Write(c.request); err != nil {
		return err
	}
	length := -1
	for first := true; ; first = false {
		line, err := c.Reader.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !strings.HasPrefix(string(line), "HTTP/1.1 200") {
			return fmt.Errorf("answered %s", line)
		}
		if len(line) == 2 {
			break
		}
		if value, found := strings.CutPrefix(string(line), "Content-Length: "); found {
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return err
			}
		}
	}
	_, err := c.Reader.Discard(length)
	return err
}

// BenchmarkPauses asks as the opens of a cache do: one connection, 0.6 ms without work before each request, so that everything is cold and asleep. It
// asks the endpoint and a handler that reads the body and answers a constant, by turns in one run. The servers are processes of their own: what
// wakes up in the client must not wake them.
func BenchmarkPauses(b *testing.B) {
	_, endpoint := process(b, modelDir(b, "reuse_v1"), "5s", "5s")
	_, nothing := launch(b, exec.Command(os.Args[0]), "nothing")
	content := oneRow(b)
	clients := []*client{dial(b, nothing, content), dial(b, endpoint, content)}
	var times [2][]time.Duration
	for b.Loop() {
		for side, c := range clients {
			for range 100 {
				pause := syscall.NsecToTimespec((600 * time.Microsecond).Nanoseconds())
				_ = syscall.Nanosleep(&pause, nil) // cut short by a signal it is a shorter pause
				sent := time.Now()
				if err := c.ask(); err != nil {
					b.Fatal(err)
				}
				times[side] = append(times[side], time.Since(sent))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for side, name := range []string{"nothing", "json"} {
		slices.Sort(times[side])
		n := len(times[side])
		b.ReportMetric(float64(times[side][n/2].Nanoseconds())/1e3, name+"-p50-us")
		b.ReportMetric(float64(times[side][n*9/10].Nanoseconds())/1e3, name+"-p90-us")
	}
}

// serveNothing is the handler to compare with, in a process of its own.
func serveNothing(stdout io.Writer) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 1
	}
	fmt.Fprintf(stdout, "ready: %s\n", address(listener, false))
	if http.Serve(listener, http.HandlerFunc(doNothing)) != nil {
		return 1
	}
	return 0
}

// doNothing reads the body and answers a constant.
func doNothing(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, "[0.2010609,0.5907504,0.2081887]")
}

// oneRow is the body of a prediction with keys, as the plugin sends it.
func oneRow(b *testing.B) string {
	row := expected(b, "reuse_v1").Inputs[0]
	var names []string
	for i := range row {
		names = append(names, fmt.Sprintf("f%d", i))
	}
	content, err := json.Marshal(map[string]any{"model": "reuse_v1", "keys": names, "values": row})
	if err != nil {
		b.Fatal(err)
	}
	return string(content)
}

// BenchmarkPredict is a prediction without HTTP: parsing, TensorFlow, encoding.
func BenchmarkPredict(b *testing.B) {
	e := start(b, modelDir(b, "reuse_v1"), nil)
	m := e.server.models.acquire([]byte("reuse_v1"))
	b.Cleanup(m.release)
	inputs := expected(b, "reuse_v1").Inputs
	for _, rows := range []int{1, 256} {
		content, err := json.Marshal(map[string]any{"model": "reuse_v1", "rows": inputs[:rows]})
		if err != nil {
			b.Fatal(err)
		}
		q := &request{body: content}
		b.Run(fmt.Sprintf("parse/rows=%d", rows), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := q.parse(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("model/rows=%d", rows), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := m.predict(q); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("encode/rows=%d", rows), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				q.encode(m)
			}
		})
	}
}

// processorTime is what this process, clients and servers together, has used of the processors.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkRun is TensorFlow alone: how a run's time grows with its rows, and with other runs at the same time.
func BenchmarkRun(b *testing.B) {
	e := start(b, modelDir(b, "reuse_v1"), nil)
	m := e.server.models.acquire([]byte("reuse_v1"))
	b.Cleanup(m.release)
	inputs := expected(b, "reuse_v1").Inputs
	for _, callers := range []int{1, 2, 4, 16} {
		for _, rows := range []int{1, 2, 4, 8, 16, 64, 256} {
			b.Run(fmt.Sprintf("callers=%d/rows=%d", callers, rows), func(b *testing.B) {
				var values []float32
				for _, row := range inputs[:rows] {
					values = append(values, row...)
				}
				began, used := time.Now(), processorTime(b)
				var group sync.WaitGroup
				for range callers {
					group.Go(func() {
						result := make([]float32, rows*m.outputs)
						for range b.N {
							if err := m.tf.Run(values, result, m.outputs); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				group.Wait()
				n := float64(b.N * callers * rows)
				b.ReportMetric(float64(time.Since(began).Nanoseconds())/n, "ns/row")
				b.ReportMetric(float64((processorTime(b)-used).Nanoseconds())/n, "cpu-ns/row")
			})
		}
	}
}
