package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// served is a server that speaks TFaaS's API, and the name under which it has the model reuse_v1.
type served struct {
	*endpoint
	name string
}

// tfaas is the stock server that SMARTCACHE_TFAAS_URL names, with the model in its folder, SMARTCACHE_TFAAS_MODELS; the test is skipped where they
// are not set.
func tfaas(t *testing.T) served {
	t.Helper()
	url, folder := os.Getenv("SMARTCACHE_TFAAS_URL"), os.Getenv("SMARTCACHE_TFAAS_MODELS")
	if url == "" || folder == "" {
		t.Skip("SMARTCACHE_TFAAS_URL and SMARTCACHE_TFAAS_MODELS name no stock TFaaS and its model folder")
	}
	// A name of its own: a stock server keeps what it has loaded under one.
	name := fmt.Sprintf("conformance_%d", os.Getpid())
	t.Cleanup(func() {
		if err := os.RemoveAll(filepath.Join(folder, name)); err != nil {
			t.Error(err)
		}
	})
	for _, each := range packed(t, "reuse_v1", name, nil) {
		path := filepath.Join(folder, each.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(each.content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return served{&endpoint{t: t, url: strings.TrimSuffix(url, "/")}, name}
}

// TestConformance sends the same requests to this server and to a stock TFaaS: each gives Keras's answers in TFaaS's form.
func TestConformance(t *testing.T) {
	for server, get := range map[string]func(*testing.T) served{
		"endpoint": func(t *testing.T) served { return served{start(t, modelDir(t, "reuse_v1"), nil), "reuse_v1"} },
		"tfaas":    tfaas,
	} {
		t.Run(server, func(t *testing.T) {
			s := get(t)
			s.predictions(t)
			s.pages(t)
			s.changes(t)
		})
	}
}

func (s served) predictions(t *testing.T) {
	want := expected(t, "reuse_v1")
	for i, row := range want.Inputs[:50] {
		var keys, texts []string
		for j, value := range row {
			keys = append(keys, fmt.Sprintf("f%d", j))
			texts = append(texts, fmt.Sprintf("%.9e", value)) // another notation than encoding/json's
		}
		bodies := [][]byte{[]byte(`{ "values" : [` + strings.Join(texts, " , ") + `], "model":"` + s.name + `" }`)}
		for _, fields := range []map[string]any{
			{"model": s.name, "values": row}, {"model": s.name, "keys": keys, "values": row}, {"model": s.name, "keys": []string{}, "values": row},
			{"model": s.name, "keys": []string(nil), "values": row},
		} {
			body, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, body)
		}
		for _, body := range bodies {
			for _, path := range []string{"/json", "/predict/json"} {
				status, answer := s.call("POST", path, bytes.NewReader(body), "Content-Type", "application/json")
				var got []float32
				if err := json.Unmarshal([]byte(answer), &got); status != 200 || err != nil || !near(got, want.Outputs[i]) {
					t.Errorf("%s %s: answered %d %s, Keras %v", path, body, status, answer, want.Outputs[i])
				}
			}
		}
		for _, body := range [][]byte{protoRow(s.name, nil, row, true), protoRow(s.name, keys, row, true), protoRow(s.name, keys, row, false)} {
			for _, path := range []string{"/proto", "/predict/proto"} {
				status, answer := s.call("POST", path, bytes.NewReader(body))
				if status != 200 {
					t.Fatalf("%s: answered %d %s", path, status, answer)
				}
				if got := probabilities(t, []byte(answer)); !near(got, want.Outputs[i]) {
					t.Errorf("%s: answered %v, Keras %v", path, got, want.Outputs[i])
				}
				// A stock TFaaS leaves them empty; who answers any has those of labels.txt.
				if got := labels(t, []byte(answer)); strings.Join(got, "") != "" && !slices.Equal(got, s.labels(t)) {
					t.Errorf("%s: labels %q, labels.txt has %q", path, got, s.labels(t))
				}
			}
		}
	}
	row, err := json.Marshal(want.Inputs[0])
	if err != nil {
		t.Fatal(err)
	}
	for what, body := range map[string]string{
		"an unknown model": `{"model":"none_of_this_name","values":` + string(row) + `}`, "no JSON": `{"model":`, "a text for the values": `{"model":"` + s.name + `","values":"x"}`,
	} {
		if status, answer := s.call("POST", "/json", strings.NewReader(body)); status < 400 {
			t.Errorf("%s: answered %d %s", what, status, answer)
		}
	}
}

// labels are the lines of labels.txt.
func (s served) labels(t *testing.T) []string {
	t.Helper()
	for _, each := range packed(t, "reuse_v1", s.name, nil) {
		if each.name == s.name+"/labels.txt" {
			return strings.Fields(each.content)
		}
	}
	t.Fatal("reuse_v1 has no labels.txt")
	return nil
}

// changes uploads a model, asks it, and deletes it again; a stock server asks for no token.
func (s served) changes(t *testing.T) {
	name := s.name + "_uploaded"
	listed := func() bool {
		status, body := s.call("GET", "/models", nil)
		var models []map[string]any
		if err := json.Unmarshal([]byte(body), &models); status != 200 || err != nil {
			t.Errorf("/models: %d %s", status, body)
		}
		return slices.ContainsFunc(models, func(m map[string]any) bool { return m["name"] == name })
	}
	if status, body := s.admin("POST", "/upload", tarOf(t, plainFolder(t, "reuse_v2", name, "")), clientHeader...); status != 200 {
		t.Fatalf("/upload: %d %s", status, body)
	}
	want := expected(t, "reuse_v2")
	s.mustPredict(name, want.Inputs[0], want.Outputs[0])
	if !listed() {
		t.Error("/models does not list what was uploaded")
	}
	if status, body := s.admin("DELETE", "/delete/"+name, nil); status != 200 {
		t.Errorf("/delete/%s: %d %s", name, status, body)
	}
	if listed() {
		t.Error("/models lists what was deleted")
	}
}

func (s served) pages(t *testing.T) {
	status, body := s.call("GET", "/models", nil)
	var models []map[string]any
	if err := json.Unmarshal([]byte(body), &models); status != 200 || err != nil ||
		!slices.ContainsFunc(models, func(m map[string]any) bool { return m["name"] == s.name }) {
		t.Errorf("/models: %d %s", status, body)
	}
	var params map[string]any
	status, body = s.call("GET", "/params/"+s.name, nil)
	if err := json.Unmarshal([]byte(body), &params); status != 200 || err != nil || params["name"] != s.name {
		t.Errorf("/params/%s: %d %s", s.name, status, body)
	}
	status, body = s.call("GET", "/status", nil)
	if err := json.Unmarshal([]byte(body), &params); status != 200 || err != nil {
		t.Errorf("/status: %d %s", status, body)
	}
}
