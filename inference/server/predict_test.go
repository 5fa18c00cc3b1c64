package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestAnswersAreThoseOfKeras(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1", "reuse_v2"), nil)
	for _, name := range []string{"reuse_v1", "reuse_v2"} {
		want := expected(t, name)
		for i, row := range want.Inputs {
			e.mustPredict(name, row, want.Outputs[i])
		}
		body, err := json.Marshal(map[string]any{"model": name, "rows": want.Inputs})
		if err != nil {
			t.Fatal(err)
		}
		status, answer := e.call("POST", "/predict/json", bytes.NewReader(body))
		var got [][]float32
		if err := json.Unmarshal([]byte(answer), &got); status != 200 || err != nil || len(got) != len(want.Outputs) {
			t.Fatalf("answered %d %.200s for %d rows", status, answer, len(want.Outputs))
		}
		for i := range got {
			if !near(got[i], want.Outputs[i]) {
				t.Errorf("row %d: answered %v, Keras %v", i, got[i], want.Outputs[i])
			}
		}
	}
}

func TestKeysDecideTheOrder(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), nil)
	want := expected(t, "reuse_v1")
	random := rand.New(rand.NewPCG(1, 2))
	for i, row := range want.Inputs[:20] {
		keys, values := make([]string, len(row)), make([]float32, len(row))
		for to, from := range random.Perm(len(row)) {
			keys[to], values[to] = fmt.Sprintf("f%d", from), row[from]
		}
		for _, field := range []string{"values", "rows"} {
			content, prefix := any(values), ""
			if field == "rows" {
				content, prefix = [][]float32{values, values}, "["
			}
			body, err := json.Marshal(map[string]any{"model": "reuse_v1", "keys": keys, field: content})
			if err != nil {
				t.Fatal(err)
			}
			status, answer := e.call("POST", "/json", bytes.NewReader(body))
			var got []float32
			first, _, _ := strings.Cut(strings.TrimPrefix(answer, prefix), "]")
			if err := json.Unmarshal([]byte(first+"]"), &got); status != 200 || err != nil || !near(got, want.Outputs[i]) {
				t.Errorf("keys %v: answered %d %s, Keras %v", keys, status, answer, want.Outputs[i])
			}
		}
	}
}

func TestRefusedPredictions(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), nil)
	names := `"f0","f1","f2","f3","f4","f5","f6","f7","f8","f9","f10","f11"`
	twelve := "1,2,3,4,5,6,7,8,9,10,11,12"
	for _, c := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"model":"reuse_v1","values":[1,2,3]}`, 400, "12 features of model reuse_v1, are 3"},
		{`{"model":"reuse_v1","values":[` + twelve + `,13]}`, 400, "are 13"},
		{`{"model":"reuse_v1","values":[]}`, 400, "must not be empty"},
		{`{"model":"reuse_v1","rows":[]}`, 400, "at least one row"},
		{`{"model":"reuse_v1","rows":[[` + twelve + `],[1]]}`, 400, "rows[1]: must have as many values as rows[0]"},
		{`{"model":"reuse_v1","values":[NaN` + strings.Repeat(",1", 11) + `]}`, 400, `values[0]: must be a finite number, is \"NaN\"`},
		{`{"model":"reuse_v1","values":[1,Infinity` + strings.Repeat(",1", 10) + `]}`, 400, "values[1]"},
		{`{"model":"reuse_v1","values":[1,1e39` + strings.Repeat(",1", 10) + `]}`, 400, "values[1]: must be a finite float32"},
		{`{"model":"reuse_v1","values":[1,null` + strings.Repeat(",1", 10) + `]}`, 400, "values[1]"},
		{`{"model":"reuse_v1","values":["1"` + strings.Repeat(",1", 11) + `]}`, 400, "values[0]"},
		{`{"model":"reuse_v1","rows":[[1,-]]}`, 400, "rows[0][1]"},
		{`{"model":"reuse_v1","keys":[` + strings.Replace(names, "f3", "f33", 1) + `],"values":[` + twelve + `]}`, 400, `keys[3]: must be a feature of model reuse_v1, is \"f33\"`},
		{`{"model":"reuse_v1","keys":[` + strings.Replace(names, "f3", "f2", 1) + `],"values":[` + twelve + `]}`, 400, "keys[3]: must be there once"},
		{`{"model":"reuse_v1","keys":["f0","f1"],"values":[1,2]}`, 400, `\"f2\" is missing`},
		{`{"model":"reuse_v1","keys":["f0","f1"],"values":[` + twelve + `]}`, 400, "as many as the keys"},
		{`{"model":"reuse_v9","values":[` + twelve + `]}`, 404, "reuse_v9"},
		{`{"model":"../reuse_v1","values":[` + twelve + `]}`, 404, "../reuse_v1"},
		{`{"values":[` + twelve + `]}`, 400, "model: must be there"},
		{`{"model":"reuse_v1"}`, 400, "values: must be there"},
		{`{"model":"reuse_v1","values":[1],"rows":[[1]]}`, 400, "one of the two"},
		{`{"model":"reuse_v1","values":[1],"values":[1]}`, 400, "is there twice"},
		{`{"model":"reuse_v1","value":[1]}`, 400, "no such field"},
		{`{"model":7,"values":[1]}`, 400, "a string was expected"},
		{`{"model":"reuse_v1","values":[` + twelve + `]} x`, 400, "nothing after the object"},
		{`{"model":"reuse_v1","values":[01]}`, 400, "a comma or a ]"},
		{`[1,2]`, 400, "body: not JSON"},
		{``, 400, "the body ends"},
	} {
		status, body := e.call("POST", "/json", strings.NewReader(c.body))
		mustFail(t, status, body, c.status, strings.ReplaceAll(c.want, `\"`, `"`))
	}
	status, body := e.call("POST", "/json", strings.NewReader("{}"), "Content-Encoding", "gzip")
	mustFail(t, status, body, 415, "uncompressed")
	status, body = e.call("GET", "/json", nil)
	mustFail(t, status, body, 405, "must be POST")
}

func TestNonFiniteOutputIsAnError(t *testing.T) {
	e := start(t, modelDir(t, "fragile_v1"), nil)
	want := expected(t, "fragile_v1")
	e.mustPredict("fragile_v1", want.Inputs[0], want.Outputs[0])
	bad := append([]float32{-1}, want.Inputs[0][1:]...)
	status, body := e.predict("fragile_v1", bad)
	mustFail(t, status, body, 500, "fragile_v1 answered NaN")
	status, body = e.call("POST", "/proto", bytes.NewReader(protoRow("fragile_v1", nil, bad, true)))
	mustFail(t, status, body, 500, "fragile_v1 answered NaN")
	rows, err := json.Marshal(map[string]any{"model": "fragile_v1", "rows": [][]float32{want.Inputs[0], bad}})
	if err != nil {
		t.Fatal(err)
	}
	status, body = e.call("POST", "/json", bytes.NewReader(rows))
	mustFail(t, status, body, 500, "fragile_v1 answered NaN")
	if _, page := e.call("GET", "/metrics", nil); !strings.Contains(page, `smartcache_endpoint_errors_total{kind="non_finite_output"} 3`) {
		t.Error("the error is not counted")
	}
	e.mustPredict("fragile_v1", want.Inputs[1], want.Outputs[1])
}

func TestBodyLimit(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), func(c *config) { c.maxBodyBytes = 2048 })
	long := `{"model":"reuse_v1","values":[` + strings.Repeat("1,", 2000) + `1]}`
	status, body := e.call("POST", "/json", strings.NewReader(long))
	mustFail(t, status, body, 413, "at most 2048 bytes")
	// Without a Content-Length the limit is found while reading.
	status, body = e.call("POST", "/json", struct{ *strings.Reader }{strings.NewReader(long)})
	mustFail(t, status, body, 413, "at most 2048 bytes")
	status, body = e.call("POST", "/json", struct{ *strings.Reader }{strings.NewReader(`{"model":"x","values":[1]}`)})
	mustFail(t, status, body, 404, "x")
}

func TestSlowBodyEndsInTime(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), func(c *config) { c.requestTimeout = 2 * time.Second })
	connection, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	// A body that never comes. The deadline is the test's own: without the server's, the read below would fail at it.
	fmt.Fprintf(connection, "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	if err := connection.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var answer bytes.Buffer
	if _, err := answer.ReadFrom(connection); err != nil {
		t.Fatalf("the server did not end the connection: %v", err)
	}
	if !strings.HasPrefix(answer.String(), "HTTP/1.1 408") {
		t.Errorf("answered %q", answer.String())
	}
}

func TestThereIsNoReadingOfFiles(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), nil)
	for _, path := range []string{"/data?model=/etc/hostname", "/", "/nothing", "/params/..%2f..%2f..%2fetc%2fhostname", "/params/%2fetc%2fhostname"} {
		status, body := e.call("GET", path, nil)
		mustFail(t, status, body, 404, "")
	}
	status, body := e.admin("DELETE", "/delete/..%2f"+"x", nil)
	mustFail(t, status, body, 400, "must be a name")
}

func TestNoLogLineForARequest(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), nil)
	want := expected(t, "reuse_v1")
	before := e.lines.Load()
	for range 20 {
		e.mustPredict("reuse_v1", want.Inputs[0], want.Outputs[0])
		e.predict("reuse_v1", want.Inputs[0][1:])
		e.predict("reuse_v9", want.Inputs[0])
		e.call("GET", "/nothing", nil)
		connection := e.dial()
		connection.send("no HTTP\r\n\r\n")
		connection.answer()
	}
	if after := e.lines.Load(); before == 0 || after != before {
		t.Errorf("%d lines were logged at start, %d for requests", before, after-before)
	}
}

func TestOperationsPages(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1", "reuse_v2"), nil)
	var list []map[string]any
	if status, body := e.call("GET", "/models", nil); status != 200 || json.Unmarshal([]byte(body), &list) != nil || len(list) != 2 ||
		list[0]["name"] != "reuse_v1" || list[1]["input_node"] != "serving_default_inputs_input" {
		t.Errorf("/models: %d %s", status, body)
	}
	if status, body := e.call("GET", "/params/reuse_v2", nil); status != 200 || !strings.Contains(body, `"reuse_v2"`) {
		t.Errorf("/params: %d %s", status, body)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, body := e.call("GET", path, nil); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	want := expected(t, "reuse_v1")
	e.mustPredict("reuse_v1", want.Inputs[0], want.Outputs[0])
	_, page := e.call("GET", "/metrics", nil)
	for _, line := range []string{
		"smartcache_endpoint_models_loaded 2\n", `smartcache_endpoint_model_loaded{model="reuse",version="1"} 1` + "\n",
		`smartcache_endpoint_requests_total{code="200",handler="predict"} 1` + "\n",
		`smartcache_endpoint_request_seconds_count{handler="predict"} 1` + "\n", "smartcache_endpoint_request_rows_sum 1\n",
	} {
		if !strings.Contains(page, line) {
			t.Errorf("/metrics lacks %q", line)
		}
	}
}

// FuzzRequest holds the parser against encoding/json: what the one takes the other takes as the same request.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","values":[1,-2.5e-3,0,1E+2]}`, ` { "keys" : ["a","\u00e4\"b"] , "rows":[[1,2],[3,4]],"model":"m" } `,
		`{"model":"m","values":[1e39]}`, `{"model":"m","values":[null]}`, `{"model":"m","values":[01]}`, `{"model":"m","values":[1.]}`,
		`{"model":"m","values":[1,]}`, `{"mod\u0065l":"m","values":[1]}`, `{"model":"m","keys": null ,"values":[1]}`, `{"model":"\ud800","values":[1]}`, "{\"model\":\"\x01\",\"values\":[1]}", `{}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q := &request{body: body}
		failed := q.parse()

		var plain struct {
			Model  *string
			Keys   []*string
			Values []*float32
			Rows   [][]*float32
		}
		err := json.Unmarshal(body, &plain)
		if failed != nil {
			return
		}
		if err != nil {
			t.Fatalf("%q was taken; encoding/json: %v", body, err)
		}
		all := plain.Values
		for _, row := range plain.Rows {
			all = append(all, row...)
		}
		if plain.Model == nil && q.model != nil || plain.Model != nil && string(q.model) != *plain.Model && isASCII(body) {
			t.Fatalf("%q: model %q", body, q.model)
		}
		if len(all) != len(q.values) || len(plain.Keys) != len(q.keys) || len(q.values) != q.rows*q.width {
			t.Fatalf("%q: %d values and %d keys, encoding/json %d and %d", body, len(q.values), len(q.keys), len(all), len(plain.Keys))
		}
		for i := range all {
			if all[i] == nil || *all[i] != q.values[i] {
				t.Fatalf("%q: value %d differs", body, i)
			}
		}
	})
}

func isASCII(b []byte) bool {
	return bytes.IndexFunc(b, func(r rune) bool { return r > 127 }) < 0
}

// TestNotReadyUntilTheModelsAreLoaded asks a server that is starting: it lives, but is not ready, and a prediction can be sent again later.
func TestNotReadyUntilTheModelsAreLoaded(t *testing.T) {
	s, err := newServer(config{modelDir: modelDir(t, "reuse_v1"), credentials: &credentials{}, maxBodyBytes: 1 << 20, batching: batching{64, 0},
		requestTimeout: 10 * time.Second, shutdownGrace: 10 * time.Second}, slog.New(slog.NewJSONHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	waiting, release := hold(s.models)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &endpoint{t: t, url: address(listener, false), server: s}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.run(ctx, listener, func() { close(ready) }) }()
	t.Cleanup(func() {
		release()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.models.close()
	})
	<-waiting
	want := expected(t, "reuse_v1")
	if status, body := e.call("GET", "/healthz", nil); status != 200 {
		t.Errorf("/healthz: %d %s", status, body)
	}
	status, body := e.call("GET", "/readyz", nil)
	mustFail(t, status, body, 503, "starting")
	status, body = e.predict("reuse_v1", want.Inputs[0])
	mustFail(t, status, body, 503, "starting")
	release()
	<-ready
	if status, body := e.call("GET", "/readyz", nil); status != 200 {
		t.Errorf("/readyz: %d %s", status, body)
	}
	e.mustPredict("reuse_v1", want.Inputs[0], want.Outputs[0])
}
