package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// asked is a prediction of so many rows of twelve ones.
func asked(t testing.TB, name string, rows int) *bytes.Reader {
	t.Helper()
	row := make([]float32, 12)
	for i := range row {
		row[i] = 1
	}
	all := make([][]float32, rows)
	for i := range all {
		all[i] = row
	}
	body, err := json.Marshal(map[string]any{"model": name, "rows": all})
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(body)
}

// TestModelsThatClaimTooMuch uploads models that say of themselves that they have more features or outputs than any memory holds, and starts
// where they are; the server goes on serving the others.
func TestModelsThatClaimTooMuch(t *testing.T) {
	folder := modelDir(t, "reuse_v1", "Wide", "Tall")
	e := start(t, folder, nil)
	for name, what := range map[string]string{
		"Wide": "input_node: the values of a row: must be at most 65536, are 1000000000000",
		"Tall": "output_node: the values of a row: must be at most 65536, are 1000000000000",
	} {
		status, body := e.call("POST", "/json", asked(t, name, 1))
		mustFail(t, status, body, 500, "model "+name+" is in the endpoint's folder, but can't be served: "+what)
		if said := e.lines.with("model left out", name, what); len(said) != 1 {
			t.Errorf("%s: said %d times", name, len(said))
		}
		status, body = e.admin("POST", "/upload", archive(t, packed(t, name, name+"2", nil)...))
		mustFail(t, status, body, 422, what)
	}
	var many []string
	for i := range maxWidth + 1 {
		many = append(many, fmt.Sprint(i))
	}
	names, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	for field, what := range map[string]string{"names": "schema.names: must be at most 65536, are 65537", "bucket_edges_s": "bucket_edges_s and one,: must be at most 65536, are 65538"} {
		upload := archive(t, packed(t, "reuse_v2", "reuse_v2", func(file, content string) string {
			if file != "bundle.json" {
				return content
			}
			before, after, _ := strings.Cut(content, `"`+field+`": [`)
			_, after, _ = strings.Cut(after, "]")
			list := string(names)
			if field == "bucket_edges_s" {
				list = strings.ReplaceAll(list, `"`, "")
			}
			return before + `"` + field + `": ` + list + after
		})...)
		status, body := e.admin("POST", "/upload", upload)
		mustFail(t, status, body, 422, what)
	}
	want := expected(t, "reuse_v1")
	e.mustPredict("reuse_v1", want.Inputs[0], want.Outputs[0])
}

// TestAnswersThatAreTooLong asks a model of 40000 outputs: a request of some kilobytes would be answered with gigabytes.
func TestAnswersThatAreTooLong(t *testing.T) {
	e := start(t, modelDir(t, "Many"), nil)
	status, body := e.call("POST", "/json", asked(t, "Many", 27))
	mustFail(t, status, body, 413, "rows: must be answered with at most 1048576 numbers, 27 rows of the 40000 outputs of model Many are more")
	status, body = e.call("POST", "/json", asked(t, "Many", 26))
	var answer [][]float32
	if err := json.Unmarshal([]byte(body), &answer); status != 200 || err != nil || len(answer) != 26 || len(answer[25]) != 40000 || answer[25][39999] != 1 {
		t.Errorf("26 rows: answered %d, %d bytes: %v", status, len(body), err)
	}
	m := e.server.models.acquire([]byte("Many"))
	defer m.release()
	if m.batcher.rows != 26 {
		t.Errorf("rows of %d requests would share a run", m.batcher.rows)
	}
}

// TestModelThatAlwaysFails is not called ready, neither at start nor uploaded; who asks for it learns why.
func TestModelThatAlwaysFails(t *testing.T) {
	folder := modelDir(t, "Failing")
	e := start(t, folder, nil)
	const why = "warm-up: it must answer a row of zeros or one of ones, and fails at both"
	if _, models := e.call("GET", "/models", nil); strings.Contains(models, "Failing") {
		t.Errorf("/models: %s", models)
	}
	status, body := e.call("POST", "/json", asked(t, "Failing", 1))
	mustFail(t, status, body, 500, "model Failing is in the endpoint's folder, but can't be served: "+why)
	status, body = e.admin("POST", "/upload", archive(t, packed(t, "Failing", "Other", nil)...))
	mustFail(t, status, body, 422, why)
	// As the default model, too: it has been that before the restart.
	if err := os.WriteFile(filepath.Join(folder, aliasFile), []byte(`{"": "Failing"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	again := start(t, folder, func(c *config) { c.credentials.adminToken = "" })
	status, body = again.call("POST", "/json", strings.NewReader(`{"values":[1,1,1,1,1,1,1,1,1,1,1,1]}`))
	mustFail(t, status, body, 500, "model Failing is in the endpoint's folder")
	if status, body := e.admin("DELETE", "/delete/Failing", nil); status != 200 {
		t.Errorf("delete: %d %s", status, body)
	}
	status, body = e.call("POST", "/json", asked(t, "Failing", 1))
	mustFail(t, status, body, 404, "none named")
}
