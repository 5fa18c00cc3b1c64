package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clientHeader is what TFaaS's own client sends with a tar.gz.
var clientHeader = []string{"Content-Encoding", "gzip", "Content-Type", "application/octet-stream"}

// plainFolder is the model `from` under another name as a folder of stock TFaaS: the SavedModel, labels.txt and params.json, which is `params` with
// the name in place of NAME, or the model's own.
func plainFolder(t testing.TB, from, name, params string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), name)
	for _, each := range packed(t, from, name, func(file, content string) string {
		switch {
		case file == "bundle.json" || file == "golden.json":
			return ""
		case file == "params.json" && params != "":
			return strings.ReplaceAll(params, "NAME", name)
		}
		return content
	}) {
		path := filepath.Join(filepath.Dir(folder), each.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(each.content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(folder, "assets"), 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

// tarOf is what `tar cfz model.tar.gz NAME` makes of a folder, which is how TFaaS's manual packs a model.
func tarOf(t testing.TB, folder string) io.Reader {
	t.Helper()
	packed, err := exec.Command("tar", "-C", filepath.Dir(folder), "-czf", "-", filepath.Base(folder)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(packed)
}

// plainParams are as TFaaS's manual writes them: keys of older versions, and names of nodes that the SavedModel has not.
const plainParams = `{"name":"NAME","model":"saved_model.pb","labels":"labels.txt","options":null,"inputNode":"dense_4_input","outputNode":"output_node0"}`

// mustServePlain asks as TFaaS's clients do, with keys of any name.
func (e *endpoint) mustServePlain(name string, want golden) {
	e.t.Helper()
	row := want.Inputs[0]
	keys := strings.Fields(strings.Repeat("attribute ", len(row)))
	body, err := json.Marshal(map[string]any{"keys": keys, "values": row, "model": name})
	if err != nil {
		e.t.Fatal(err)
	}
	status, answer := e.call("POST", "/json", bytes.NewReader(body))
	var got []float32
	if err := json.Unmarshal([]byte(answer), &got); status != 200 || err != nil || !near(got, want.Outputs[0]) {
		e.t.Errorf("%s: answered %d %s, Keras %v", name, status, answer, want.Outputs[0])
	}
	e.mustPredict(name, want.Inputs[1], want.Outputs[1])
	for _, values := range [][]float32{row[1:], append([]float32{1}, row...)} {
		status, answer := e.predict(name, values)
		mustFail(e.t, status, answer, 400, "must be the 12 features of model "+name)
	}
	status, answer = e.call("POST", "/json", strings.NewReader(`{"keys":["a"],"values":[1,2],"model":"`+name+`"}`))
	mustFail(e.t, status, answer, 400, "as many as the keys")
}

func TestPlainModelIsUploaded(t *testing.T) {
	e := start(t, modelDir(t), nil)
	want := expected(t, "reuse_v1")
	if status, body := e.admin("POST", "/upload", tarOf(t, plainFolder(t, "reuse_v1", "ImageModel", plainParams)), clientHeader...); status != 200 {
		t.Fatalf("tar.gz: %d %s", status, body)
	}
	e.mustServePlain("ImageModel", want)
	_, answer := e.call("POST", "/proto", bytes.NewReader(protoRow("ImageModel", nil, want.Inputs[0], true)))
	if got := labels(t, []byte(answer)); !slices.Equal(got, []string{"within_3600s", "within_86400s", "later_or_never"}) {
		t.Errorf("labels %q", got)
	}
	said := e.lines.with(`"model":"ImageModel"`, "plain TFaaS model")
	if len(said) != 1 {
		t.Fatalf("said %d times: %v", len(said), said)
	}
	for _, what := range []string{"bundle.json", "golden.json", "dense_4_input"} {
		if !strings.Contains(said[0], what) {
			t.Errorf("%s is not said to be missing: %s", what, said[0])
		}
	}
	// The form of TFaaS's manual.
	folder := plainFolder(t, "reuse_v2", "Other", plainParams)
	var entries []entry
	for path, content := range files(t, folder) {
		if inside, err := filepath.Rel(folder, path); err == nil && filepath.Ext(path) != "" && !strings.HasPrefix(content, "d---") {
			entries = append(entries, entry{name: "Other/" + inside, content: content})
		}
	}
	body, kind := form(t, "Other", entries...)
	if status, answer := e.admin("POST", "/upload", body, "Content-Type", kind); status != 200 {
		t.Fatalf("form: %d %s", status, answer)
	}
	e.mustServePlain("Other", expected(t, "reuse_v2"))
	if said := e.lines.with(`"model":"Other"`, "labels.txt, the labels that params.json names: can't be read"); len(said) != 1 {
		t.Error("that its labels are missing is not said")
	}
}

func TestPlainFolderIsServed(t *testing.T) {
	folder := modelDir(t, "reuse_v1")
	for _, name := range []string{"PlainModel", "NoZeros", "NotFinite"} {
		from := map[string]string{"PlainModel": "reuse_v2", "NoZeros": "picky_v1", "NotFinite": "fragile_v1"}[name]
		if err := os.CopyFS(filepath.Join(folder, name), os.DirFS(plainFolder(t, from, name, ""))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(folder, "Blind"), os.DirFS(plainFolder(t, "blind_v1", "Blind", ""))); err != nil {
		t.Fatal(err)
	}
	e := start(t, folder, nil)
	if said := e.lines.with("model left out", `"model":"Blind"`, "the graph does not say how wide it is, and a row of zeros fails"); len(said) != 1 {
		t.Errorf("said %d times that a model cannot be served whose outputs nobody can count", len(said))
	}
	e.mustServePlain("PlainModel", expected(t, "reuse_v2"))
	e.mustServePlain("NoZeros", expected(t, "picky_v1"))
	e.mustServePlain("NotFinite", expected(t, "fragile_v1"))
	for name, what := range map[string]string{"PlainModel": "labels: it has 0 for 3 outputs", "NoZeros": "a row of zeros: it does not take one, and was warmed up with one of ones",
		"NotFinite": "warm-up: its answer is not finite", "reuse_v1": ""} {
		want := 1
		if what == "" {
			want = 0
		}
		if said := e.lines.with(`"model":"`+name+`"`, "plain TFaaS model", what); len(said) != want {
			t.Errorf("%s: said %d times, must be %d", name, len(said), want)
		}
	}
	status, body := e.predict("NoZeros", make([]float32, 12))
	mustFail(t, status, body, 500, "NoZeros failed")
	if status, body := e.call("GET", "/params/PlainModel", nil); status != 200 || !strings.Contains(body, `"name":"PlainModel"`) {
		t.Errorf("/params/PlainModel: %d %s", status, body)
	}
	if status, body := e.admin("DELETE", "/delete/PlainModel", nil); status != 200 {
		t.Errorf("delete: %d %s", status, body)
	}
}
