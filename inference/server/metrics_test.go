package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
)

// loadedSeries are the lines of the page about single models.
func loadedSeries(page string) (found []string) {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "smartcache_endpoint_model_loaded{") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// TestEachModelHasASeries looks that the gauge follows the models that come and go.
func TestEachModelHasASeries(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), nil)
	if status, body := e.admin("POST", "/upload", archive(t, packed(t, "reuse_v2", "plain_name", nil)...)); status != 200 {
		t.Fatalf("upload: %d %s", status, body)
	}
	_, page := e.call("GET", "/metrics", nil)
	want := []string{`smartcache_endpoint_model_loaded{model="plain_name",version=""} 1`, `smartcache_endpoint_model_loaded{model="reuse",version="1"} 1`}
	if got := loadedSeries(page); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("series %q, must be %q", got, want)
	}
	if status, body := e.admin("DELETE", "/delete/plain_name", nil); status != 200 {
		t.Fatalf("delete: %d %s", status, body)
	}
	_, page = e.call("GET", "/metrics", nil)
	if got := loadedSeries(page); fmt.Sprint(got) != fmt.Sprint(want[1:]) {
		t.Errorf("series %q, must be %q", got, want[1:])
	}
}

// TestSeriesOfModelsAreBounded has more models than there are series: the newest have one.
func TestSeriesOfModelsAreBounded(t *testing.T) {
	r, err := newRegistry(t.TempDir(), false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxModelSeries {
		name := fmt.Sprintf("reuse_v%d", i)
		r.models[name] = &model{bundle: &bundle{name: name}}
	}
	answer := httptest.NewRecorder()
	newMetrics(r.list, r.countLeftOut).page().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	page, err := io.ReadAll(answer.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	got := loadedSeries(string(page))
	if len(got) != maxModelSeries || !strings.Contains(string(page), "smartcache_endpoint_models_loaded 200\n") {
		t.Errorf("%d series", len(got))
	}
	for i := range maxModelSeries {
		if line := fmt.Sprintf(`smartcache_endpoint_model_loaded{model="reuse",version="%d"} 1`, maxModelSeries+i); !strings.Contains(string(page), line+"\n") {
			t.Errorf("lacks %s", line)
		}
	}
}
