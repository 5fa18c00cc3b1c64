package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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

// BenchmarkJSON compares predictions over HTTP with a handler that reads the body and answers a constant: what is over is ours and
// TensorFlow's. Both are asked by turns in one run. An operation is `round` requests to each.
func BenchmarkJSON(b *testing.B) {
	e := start(b, modelDir(b, "reuse_v1"), nil)
	nothing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "[0.2010609,0.5907504,0.2081887]")
	}))
	b.Cleanup(nothing.Close)
	row := expected(b, "reuse_v1").Inputs[0]
	var names []string
	for i := range row {
		names = append(names, fmt.Sprintf("f%d", i))
	}
	content, err := json.Marshal(map[string]any{"model": "reuse_v1", "keys": names, "values": row})
	if err != nil {
		b.Fatal(err)
	}

	for _, connections := range []int{1, 16} {
		b.Run(fmt.Sprintf("connections=%d", connections), func(b *testing.B) {
			const round = 500
			var times [2][]time.Duration
			var wall, cpu [2]time.Duration
			clients := [2][]*client{}
			for range connections {
				clients[0] = append(clients[0], dial(b, nothing.URL, string(content)))
				clients[1] = append(clients[1], dial(b, e.url, string(content)))
			}
			for b.Loop() {
				for side := range clients {
					latencies := make([][]time.Duration, connections)
					began, used := time.Now(), processorTime(b)
					var group sync.WaitGroup
					for i, c := range clients[side] {
						group.Go(func() {
							for range round / connections {
								sent := time.Now()
								if err := c.ask(); err != nil {
									b.Error(err)
									return
								}
								latencies[i] = append(latencies[i], time.Since(sent))
							}
						})
					}
					group.Wait()
					wall[side] += time.Since(began)
					cpu[side] += processorTime(b) - used
					times[side] = append(times[side], slices.Concat(latencies...)...)
				}
			}
			b.ReportMetric(0, "ns/op")
			for side, name := range []string{"nothing", "json"} {
				slices.Sort(times[side])
				n := len(times[side])
				b.ReportMetric(float64(times[side][n/2].Nanoseconds())/1e3, name+"-p50-us")
				b.ReportMetric(float64(times[side][n*99/100].Nanoseconds())/1e3, name+"-p99-us")
				b.ReportMetric(float64(n)/wall[side].Seconds(), name+"-req/s")
				b.ReportMetric(float64(cpu[side].Microseconds())/float64(n), name+"-cpu-us/req")
			}
			b.ReportMetric(wall[1].Seconds()/wall[0].Seconds(), "time-ratio")
		})
	}
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
				q.encode(m.outputs)
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
