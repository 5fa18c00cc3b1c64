package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"mime/multipart"
	"net/textproto"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestUploadedModelIsServed(t *testing.T) {
	e := start(t, modelDir(t), nil)
	one, two := expected(t, "reuse_v1"), expected(t, "reuse_v2")
	if status, body := e.admin("POST", "/upload", archive(t, packed(t, "reuse_v1", "reuse_v1", nil)...)); status != 200 || !strings.Contains(body, "loaded") {
		t.Fatalf("tar: %d %s", status, body)
	}
	e.mustPredict("reuse_v1", one.Inputs[0], one.Outputs[0])
	if status, body := e.admin("POST", "/upload", gzipped(t, archive(t, packed(t, "reuse_v2", "reuse_v2", nil)...)), "Content-Encoding", "gzip"); status != 200 {
		t.Fatalf("tar.gz: %d %s", status, body)
	}
	e.mustPredict("reuse_v2", two.Inputs[0], two.Outputs[0])

	// It is in the folder as it was sent, and a server that starts there serves it.
	again := start(t, e.folder, func(c *config) { c.credentials.adminToken = "" })
	again.mustPredict("reuse_v2", two.Inputs[0], two.Outputs[0])
}

// form is an upload as stock TFaaS's page sends it; the files are those of an archive's entries.
func form(t *testing.T, name string, entries ...entry) (io.Reader, string) {
	t.Helper()
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	if name != "" {
		if err := w.WriteField("name", name); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range entries {
		file := strings.TrimPrefix(e.name, name+"/")
		field := map[string]string{"params.json": "params", "saved_model.pb": "model"}[file]
		if field == "" {
			field = "file"
		}
		part, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf("form-data; name=%q; filename=%q", field, file)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(part, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out, w.FormDataContentType()
}

func TestUploadForms(t *testing.T) {
	outer := t.TempDir()
	folder := filepath.Join(outer, "models")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	e := start(t, folder, func(c *config) { c.maxUploadBytes = 1 << 20 })
	before := files(t, outer)
	whole := packed(t, "reuse_v1", "reuse_v1", nil)
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		what, name string
		entries    []entry
		status     int
		want       string
	}{
		{"no name", "", whole, 400, "must have the field name and files"},
		{"a bad name", "../x", whole, 400, "field name"},
		{"no files", "reuse_v1", nil, 400, "must have the field name and files"},
		{"a path out of the folder", "reuse_v1", append([]entry{{name: "../evil"}}, whole...), 400, "inside the model's folder"},
		{"a path through the folder", "reuse_v1", append([]entry{{name: "variables/../../evil"}}, whole...), 400, "inside the model's folder"},
		{"an absolute path", "reuse_v1", append([]entry{{name: outer + "/evil"}}, whole...), 400, "inside the model's folder"},
		{"the folder itself", "reuse_v1", append([]entry{{name: "."}}, whole...), 400, "the file's place in the model's folder"},
		{"the folder itself, alone", "reuse_v1", []entry{{name: "./"}}, 400, "the file's place in the model's folder"},
		{"a file in a file", "reuse_v1", append([]entry{{name: "variables"}}, whole...), 400, "archive:"},
		{"too long a name", "reuse_v1", append([]entry{{name: strings.Repeat("x", 256)}}, whole...), 400, "archive:"},
		{"a file twice", "reuse_v1", slices.Concat(whole[:1], whole), 400, "is there twice"},
		{"too long", "reuse_v1", append([]entry{{name: "long", content: long}}, whole...), 413, "at most 1048576 bytes"},
		{"half a model", "reuse_v1", whole[:2], 422, "can't be served"},
	} {
		body, kind := form(t, c.name, c.entries...)
		status, answer := e.admin("POST", "/upload", body, "Content-Type", kind)
		t.Log(c.what, status, answer)
		mustFail(t, status, answer, c.status, c.want)
		if after := files(t, outer); !maps.Equal(before, after) {
			t.Fatalf("%s left something: %v", c.what, after)
		}
	}
	body, kind := form(t, "reuse_v1", whole...)
	if status, answer := e.admin("POST", "/upload", body, "Content-Type", kind); status != 200 {
		t.Fatalf("the whole model: %d %s", status, answer)
	}
	want := expected(t, "reuse_v1")
	e.mustPredict("reuse_v1", want.Inputs[0], want.Outputs[0])
	if status, answer := e.admin("POST", "/upload", archive(t, whole...)); status != 200 || !strings.Contains(answer, "already served") {
		t.Errorf("the same as a tar: %d %s", status, answer)
	}
}

// TestFormsOfNoFile have a part whose filename is empty, as a page sends it where nobody has chosen a file.
func TestFormsOfNoFile(t *testing.T) {
	e := start(t, modelDir(t), nil)
	for _, c := range []struct {
		field  string
		status int
		want   string
	}{
		{"file", 400, `field \"file\": its filename must be the file's place in the model's folder, is \"\"`},
		{"model", 400, "is there twice"},
		{"labels", 200, "loaded"},
	} {
		body, kind := form(t, "reuse_v1", packed(t, "reuse_v1", "reuse_v1", nil)...)
		_, parameters, err := mime.ParseMediaType(kind)
		if err != nil {
			t.Fatal(err)
		}
		part := fmt.Sprintf("--%s\r\nContent-Disposition: form-data; name=%q; filename=\"\"\r\n\r\n\r\n", parameters["boundary"], c.field)
		status, answer := e.admin("POST", "/upload", io.MultiReader(strings.NewReader(part), body), "Content-Type", kind)
		if status != c.status || !strings.Contains(answer, c.want) {
			t.Errorf("%s: %d %s", c.field, status, answer)
		}
	}
	want := expected(t, "reuse_v1")
	e.mustPredict("reuse_v1", want.Inputs[0], want.Outputs[0])
}

func TestNameStandsForOneContent(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), nil)
	one, two := expected(t, "reuse_v1"), expected(t, "reuse_v2")
	before := files(t, e.folder)

	status, body := e.admin("POST", "/upload", archive(t, packed(t, "reuse_v2", "reuse_v1", nil)...))
	mustFail(t, status, body, 409, "other content")
	if status, body := e.admin("POST", "/upload", archive(t, packed(t, "reuse_v1", "reuse_v1", nil)...)); status != 200 || !strings.Contains(body, "already served") {
		t.Errorf("identical: %d %s", status, body)
	}
	e.mustPredict("reuse_v1", one.Inputs[0], one.Outputs[0])
	if !maps.Equal(before, files(t, e.folder)) {
		t.Error("the folder has changed")
	}

	// Deleted and uploaded again, the name serves the new content at once.
	if status, body := e.admin("DELETE", "/delete/reuse_v1", nil); status != 200 {
		t.Fatalf("delete: %d %s", status, body)
	}
	status, body = e.predict("reuse_v1", one.Inputs[0])
	mustFail(t, status, body, 404, "reuse_v1")
	if _, err := os.Stat(filepath.Join(e.folder, "reuse_v1")); !os.IsNotExist(err) {
		t.Errorf("the deleted model's folder: %v", err)
	}
	if status, body := e.admin("POST", "/upload", archive(t, packed(t, "reuse_v2", "reuse_v1", nil)...)); status != 200 {
		t.Fatalf("upload: %d %s", status, body)
	}
	e.mustPredict("reuse_v1", two.Inputs[0], two.Outputs[0])
	status, body = e.admin("DELETE", "/delete/reuse_v3", nil)
	mustFail(t, status, body, 404, "reuse_v3")
}

// TestAliasesThatCantBeRead are set aside: the models are served.
func TestAliasesThatCantBeRead(t *testing.T) {
	for _, content := range []string{"", `{"": "reu`, "[]", "null"} {
		folder := modelDir(t, "reuse_v1")
		place := filepath.Join(folder, aliasFile)
		if err := os.WriteFile(place, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		e := start(t, folder, nil)
		if status, body := e.call("POST", "/json", asked(t, "reuse_v1", 1)); status != 200 {
			t.Errorf("%q: %d %s", content, status, body)
		}
		reader := start(t, folder, func(c *config) { c.credentials.adminToken = "" })
		if status, body := reader.call("POST", "/json", asked(t, "reuse_v1", 1)); status != 200 {
			t.Errorf("%q, as one that changes nothing: %d %s", content, status, body)
		}
		if kept, err := os.ReadFile(place + ".bad"); err != nil || string(kept) != content {
			t.Errorf("%q was not kept: %q, %v", content, kept, err)
		}
		if status, body := e.admin("POST", "/params", strings.NewReader(`{"name":"reuse_v1"}`)); status != 200 {
			t.Errorf("%q: no alias can be set: %d %s", content, status, body)
		}
	}
}

func TestRefusedUploadsLeaveNothing(t *testing.T) {
	outer := t.TempDir()
	folder := filepath.Join(outer, "models")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	e := start(t, folder, func(c *config) { c.maxUploadBytes = 1 << 20 })
	before := files(t, outer)

	whole := packed(t, "reuse_v1", "reuse_v1", nil)
	with := func(extra ...entry) *bytes.Buffer { return archive(t, append(extra, whole...)...) }
	edited := func(file string, edit func(string) string) *bytes.Buffer {
		return archive(t, packed(t, "reuse_v1", "reuse_v1", func(f, content string) string {
			if f == file {
				return edit(content)
			}
			return content
		})...)
	}
	whole1 := archive(t, whole...).Bytes()
	cut := whole1[:len(whole1)/2]
	bad := gzipped(t, bytes.NewBuffer(bytes.Clone(whole1)))
	bad.Bytes()[bad.Len()-8] ^= 1 // the checksum
	for _, c := range []struct {
		what   string
		body   io.Reader
		gzip   bool
		status int
		want   string
	}{
		{"a path out of the folder", with(entry{name: "../evil", content: "x"}), false, 400, "inside the archive's own folder"},
		{"a path out and in again", with(entry{name: "reuse_v1/../../evil", content: "x"}), false, 400, "inside the archive's own folder"},
		{"a path through the folder", with(entry{name: "reuse_v1/../reuse_v1/evil", content: "x"}), false, 400, "inside the archive's own folder"},
		{"an absolute path", with(entry{name: filepath.Join(outer, "evil"), content: "x"}), false, 400, "inside the archive's own folder"},
		{"a symbolic link", with(entry{name: "reuse_v1/link", kind: tar.TypeSymlink, link: outer}), false, 400, "must be a file or a folder"},
		{"a hard link", with(entry{name: "reuse_v1/link", kind: tar.TypeLink, link: "/etc/hostname"}), false, 400, "must be a file or a folder"},
		{"a device", with(entry{name: "reuse_v1/null", kind: tar.TypeChar}), false, 400, "must be a file or a folder"},
		{"a FIFO", with(entry{name: "reuse_v1/fifo", kind: tar.TypeFifo}), false, 400, "must be a file or a folder"},
		{"two models", with(entry{name: "reuse_v2/params.json", content: "{}"}), false, 400, "same folder as the others"},
		{"a bad name", archive(t, entry{name: "reuse-v1/params.json", content: "{}"}), false, 400, "named as the model"},
		{"a file for a folder", archive(t, entry{name: "reuse_v1", content: "{}"}), false, 400, "must lie in a folder"},
		{"a file twice", with(entry{name: "reuse_v1/params.json", content: "{}"}), false, 400, "is there twice"},
		{"a file in a file", with(entry{name: "reuse_v1/variables", content: "{}"}), false, 400, "archive:"},
		{"too long a name", with(entry{name: "reuse_v1/" + strings.Repeat("x", 256), content: "{}"}), false, 400, "archive:"},
		{"an empty archive", archive(t), false, 400, "is empty"},
		{"no archive", strings.NewReader(strings.Repeat("x", 1024)), false, 400, "archive:"},
		{"half an archive", bytes.NewReader(cut), false, 400, "archive:"},
		{"gzip that is not said", gzipped(t, with()), false, 400, "Content-Encoding: gzip"},
		{"gzip that is none", with(), true, 400, "archive:"},
		{"a wrong checksum", bad, true, 400, "checksum"},
		{"too long a body", with(entry{name: "reuse_v1/long", content: strings.Repeat("x", 1<<20)}), false, 413, "at most 1048576 bytes"},
		{"much that is not there", bytes.NewReader(sparse(t, "reuse_v1/long", 1<<40)), false, 413, "at most 1048576 bytes"},
		{"too much when unpacked", gzipped(t, with(entry{name: "reuse_v1/long", content: strings.Repeat("x", 1<<20)})), true, 413, "at most 1048576 bytes"},
		{"no SavedModel", edited("saved_model.pb", func(string) string { return "" }), false, 422, "SavedModel"},
		{"a broken SavedModel", edited("saved_model.pb", func(s string) string { return s[:len(s)/2] }), false, 422, "SavedModel"},
		{"no golden rows", edited("golden.json", func(string) string { return "" }), false, 422, "golden.json"},
		{"no bundle.json, but golden rows", edited("bundle.json", func(string) string { return "" }), false, 422, "bundle.json: can't be read"},
		{"no params", edited("params.json", func(string) string { return "" }), false, 422, "params.json"},
		{"a wrong node", edited("params.json", func(s string) string { return strings.Replace(s, "StatefulPartitionedCall:0", "nothing:0", 1) }), false, 422, "output_node"},
		{"another model's golden rows", edited("golden.json", func(string) string {
			for _, e := range packed(t, "reuse_v2", "reuse_v2", nil) {
				if strings.HasSuffix(e.name, "golden.json") {
					return e.content
				}
			}
			return ""
		}), false, 422, "golden.json: row 0, output 0: the model answers"},
		{"another name inside", edited("bundle.json", func(s string) string { return strings.Replace(s, `"reuse_v1"`, `"reuse_v7"`, 1) }), false, 422, "bundle.json: name"},
		{"labels that are no text", edited("labels.txt", func(s string) string { return s[:2] + "\xff" + s[2:] }), false, 422, "labels.txt: line 1: must be UTF-8"},
		{"a feature too few", edited("bundle.json", func(s string) string { return strings.Replace(s, `"f0", `, "", 1) }), false, 422, "golden.json: row 0: must have 11 inputs"},
	} {
		header := []string{}
		if c.gzip {
			header = []string{"Content-Encoding", "gzip"}
		}
		status, body := e.admin("POST", "/upload", c.body, header...)
		t.Log(c.what, status, body)
		mustFail(t, status, body, c.status, c.want)
		if after := files(t, outer); !maps.Equal(before, after) {
			t.Fatalf("%s left something: %v", c.what, after)
		}
	}
	if e.server.models.count() != 0 {
		t.Error("a refused model is served")
	}
	if status, body := e.admin("POST", "/upload", with()); status != 200 {
		t.Errorf("the whole model: %d %s", status, body)
	}
}

// TestSlowUploadsHoldUpNobody has bodies of which no more comes, as many as there may be but one; the others change what they want meanwhile.
func TestSlowUploadsHoldUpNobody(t *testing.T) {
	e := start(t, modelDir(t), func(c *config) { c.requestTimeout = 10 * time.Minute })
	whole := archive(t, packed(t, "reuse_v1", "reuse_v1", nil)...).Bytes()
	half := len(whole) / 2
	var slow sync.WaitGroup
	var rest []func()
	for range maxUploads - 1 {
		body, feed := io.Pipe()
		slow.Go(func() {
			if status, answer := e.admin("POST", "/upload", body); status != 200 {
				t.Errorf("the slow one: %d %s", status, answer)
			}
		})
		if _, err := feed.Write(whole[:half]); err != nil {
			t.Fatal(err)
		}
		rest = append(rest, func() {
			if _, err := feed.Write(whole[half:]); err != nil {
				t.Error(err)
			}
			feed.Close()
		})
	}
	for len(e.server.uploads) < maxUploads-1 {
		runtime.Gosched()
	}
	if status, answer := e.admin("POST", "/upload", archive(t, packed(t, "reuse_v2", "reuse_v2", nil)...)); status != 200 {
		t.Errorf("upload: %d %s", status, answer)
	}
	if status, answer := e.admin("DELETE", "/delete/reuse_v2", nil); status != 200 {
		t.Errorf("delete: %d %s", status, answer)
	}
	for _, finish := range rest {
		finish()
	}
	slow.Wait()
	want := expected(t, "reuse_v1")
	e.mustPredict("reuse_v1", want.Inputs[0], want.Outputs[0])
	if left := files(t, e.folder); slices.ContainsFunc(slices.Collect(maps.Keys(left)), func(file string) bool { return strings.Contains(file, uploadPrefix) }) {
		t.Errorf("files of uploads are left: %v", left)
	}
}

func TestChangesNeedTheToken(t *testing.T) {
	folder := modelDir(t, "reuse_v1")
	e := start(t, folder, nil)
	before := files(t, folder)
	for _, header := range [][]string{nil, {"Authorization", "Bearer wrong"}, {"Authorization", "Bearer "}, {"Authorization", "Basic " + token}, {"Authorization", token}} {
		status, body := e.call("DELETE", "/delete/reuse_v1", nil, header...)
		mustFail(t, status, body, 401, "Authorization")
		status, body = e.call("POST", "/upload", archive(t, packed(t, "reuse_v2", "reuse_v2", nil)...), header...)
		mustFail(t, status, body, 401, "Authorization")
	}
	// A server without a token changes nothing, whatever is sent, and does not even lock the folder.
	without := start(t, folder, func(c *config) { c.credentials.adminToken = "" })
	for _, header := range [][]string{nil, {"Authorization", "Bearer "}, {"Authorization", "Bearer " + token}} {
		status, body := without.call("DELETE", "/delete/reuse_v1", nil, header...)
		mustFail(t, status, body, 403, "admin_token_file")
	}
	if !maps.Equal(before, files(t, folder)) {
		t.Error("the folder has changed")
	}
	want := expected(t, "reuse_v1")
	e.mustPredict("reuse_v1", want.Inputs[0], want.Outputs[0])
}

// TestChangesUnderLoad predicts with two models while a third comes and goes: under -race, no answer is ever wrong or missing.
func TestChangesUnderLoad(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), func(c *config) { c.requestTimeout = 5 * time.Minute })
	one, two := expected(t, "reuse_v1"), expected(t, "reuse_v2")
	upload := archive(t, packed(t, "reuse_v2", "reuse_v2", nil)...).Bytes()

	var stop atomic.Bool
	var served, absent atomic.Int64
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := worker; !stop.Load(); i = (i + 1) % len(one.Inputs) {
				e.mustPredict("reuse_v1", one.Inputs[i], one.Outputs[i])
				switch status, body := e.predict("reuse_v2", two.Inputs[i]); status {
				case 404:
					absent.Add(1)
				case 200:
					var got []float32
					if json.Unmarshal([]byte(body), &got) != nil || !near(got, two.Outputs[i]) {
						t.Errorf("reuse_v2 answered %s, Keras %v", body, two.Outputs[i])
					}
					served.Add(1)
				default:
					t.Errorf("reuse_v2 answered %d %s", status, body)
				}
			}
		})
	}
	// Two who change: each call ends in one of the states that it may.
	var changers sync.WaitGroup
	for range 2 {
		changers.Go(func() {
			for range 10 {
				if status, body := e.admin("POST", "/upload", bytes.NewReader(upload)); status != 200 {
					t.Errorf("upload: %d %s", status, body)
				}
				// So that the model is also asked while it is there.
				for seen := served.Load(); served.Load() == seen && e.server.models.serves("reuse_v2"); {
					e.mustPredict("reuse_v1", one.Inputs[0], one.Outputs[0])
				}
				if status, body := e.admin("DELETE", "/delete/reuse_v2", nil); status != 200 && status != 404 {
					t.Errorf("delete: %d %s", status, body)
				}
			}
		})
	}
	changers.Wait()
	stop.Store(true)
	group.Wait()
	if served.Load() == 0 || absent.Load() == 0 {
		t.Errorf("the model was there for %d requests and absent for %d: the test must see both", served.Load(), absent.Load())
	}
	if left := files(t, e.folder); left[filepath.Join(e.folder, "reuse_v2")] != "" {
		t.Error("the deleted model is still there")
	}
}

func TestDeleteWaitsForPredictions(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), nil)
	want := expected(t, "reuse_v1")
	m := e.server.models.acquire([]byte("reuse_v1"))
	deleted := make(chan int, 1)
	go func() {
		status, _ := e.admin("DELETE", "/delete/reuse_v1", nil)
		deleted <- status
	}()
	for e.server.models.serves("reuse_v1") {
		e.call("GET", "/healthz", nil)
	}
	// It is no longer served, but who has it can still use it.
	result := make([]float32, m.outputs)
	if err := m.tf.Run(want.Inputs[0], result, m.outputs); err != nil || !near(result, want.Outputs[0]) {
		t.Errorf("%v %v", result, err)
	}
	select {
	case status := <-deleted:
		t.Errorf("answered %d while the model was in use", status)
	default:
	}
	m.release()
	if status := <-deleted; status != 200 {
		t.Errorf("delete: %d", status)
	}
}

// TestDeleteOfAModelThatHasBecomeALink leaves the link, and what it leads to, to who has made it.
func TestDeleteOfAModelThatHasBecomeALink(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), nil)
	place, elsewhere := filepath.Join(e.folder, "reuse_v1"), filepath.Join(t.TempDir(), "elsewhere")
	if err := errors.Join(os.Rename(place, elsewhere), os.Symlink(elsewhere, place)); err != nil {
		t.Fatal(err)
	}
	before := files(t, elsewhere)
	status, body := e.admin("DELETE", "/delete/reuse_v1", nil)
	mustFail(t, status, body, 409, "links are not followed")
	if _, err := os.Readlink(place); err != nil || !maps.Equal(before, files(t, elsewhere)) {
		t.Errorf("the link: %v; what it leads to: %v", err, files(t, elsewhere))
	}
	want := expected(t, "reuse_v1")
	e.mustPredict("reuse_v1", want.Inputs[0], want.Outputs[0])
	if err := os.Remove(place); err != nil {
		t.Fatal(err)
	}
	if status, body := e.admin("DELETE", "/delete/reuse_v1", nil); status != 200 {
		t.Errorf("delete: %d %s", status, body)
	}
}

func TestStartWithFoldersInDisorder(t *testing.T) {
	folder := modelDir(t, "reuse_v1", "reuse_v2")
	if err := os.WriteFile(filepath.Join(folder, "reuse_v2", "saved_model.pb"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".upload-123", ".deleted-123", "not-a-model"} {
		if err := os.MkdirAll(filepath.Join(folder, name, "inside"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("reuse_v1", filepath.Join(folder, "current")); err != nil {
		t.Fatal(err)
	}
	e := start(t, folder, nil)
	want := expected(t, "reuse_v1")
	e.mustPredict("reuse_v1", want.Inputs[0], want.Outputs[0])
	status, body := e.predict("reuse_v2", want.Inputs[0])
	mustFail(t, status, body, 500, "model reuse_v2 is in the endpoint's folder, but can't be served: SavedModel")
	status, body = e.predict("current", want.Inputs[0])
	mustFail(t, status, body, 404, "current")
	// A link is no model, to be deleted neither.
	status, body = e.admin("DELETE", "/delete/current", nil)
	mustFail(t, status, body, 404, "current")
	if _, err := os.Readlink(filepath.Join(folder, "current")); err != nil {
		t.Error(err)
	}
	if _, page := e.call("GET", "/metrics", nil); !strings.Contains(page, "smartcache_endpoint_models_left_out 1\n") {
		t.Error("the broken model is not counted")
	}
	left := files(t, folder)
	if left[filepath.Join(folder, ".upload-123")] != "" || left[filepath.Join(folder, ".deleted-123")] != "" || left[filepath.Join(folder, "not-a-model")] == "" {
		t.Errorf("left: %v", left)
	}

	// One who also wants to change this folder is refused.
	if _, err := newServer(e.server.config, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "locked by another") {
		t.Errorf("a second server: %v", err)
	}

	// The broken folder is neither hidden nor overwritten by an upload; deleted, it makes room.
	good := archive(t, packed(t, "reuse_v2", "reuse_v2", nil)...).Bytes()
	status, body = e.admin("POST", "/upload", bytes.NewReader(good))
	mustFail(t, status, body, 409, "could not be loaded")
	if status, body := e.admin("DELETE", "/delete/reuse_v2", nil); status != 200 {
		t.Errorf("delete: %d %s", status, body)
	}
	if _, page := e.call("GET", "/metrics", nil); !strings.Contains(page, "smartcache_endpoint_models_left_out 0\n") {
		t.Error("the broken model is counted, though it is gone")
	}
	if status, body := e.admin("POST", "/upload", bytes.NewReader(good)); status != 200 {
		t.Errorf("upload: %d %s", status, body)
	}
}

// hold makes every loading of a model wait; it returns the channel that tells of each, and what lets them go on.
func hold(r *registry) (waiting chan string, release func()) {
	waiting, gate := make(chan string, 100), make(chan struct{})
	open := r.open
	r.open = func(folder, name string) (*model, error) {
		waiting <- name
		<-gate
		return open(folder, name)
	}
	return waiting, sync.OnceFunc(func() { close(gate) })
}

// TestTwelveModelsAtOnce uploads twelve models at once under load. That the models are being loaded holds up no prediction: they are answered while
// a load does not end; and while all twelve are loaded in fact, answers never cease for long.
func TestTwelveModelsAtOnce(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), func(c *config) { c.requestTimeout = 10 * time.Minute })
	want := expected(t, "reuse_v1")
	waiting, release := hold(e.server.models)
	t.Cleanup(release)

	var uploads sync.WaitGroup
	for i := range 12 {
		name := fmt.Sprintf("other_v%d", i)
		body := archive(t, packed(t, "reuse_v2", name, nil)...)
		uploads.Go(func() {
			if status, answer := e.admin("POST", "/upload", body); status != 200 {
				t.Errorf("%s: %d %s", name, status, answer)
			}
		})
	}
	<-waiting
	for i, row := range want.Inputs[:100] {
		e.mustPredict("reuse_v1", row, want.Outputs[i])
	}
	if e.server.models.count() != 1 {
		t.Error("a model is served that is not loaded yet")
	}

	var loaded atomic.Bool
	var last, longest atomic.Int64
	var load sync.WaitGroup
	last.Store(time.Now().UnixNano())
	release()
	for caller := range 4 {
		load.Go(func() {
			for i := caller; !loaded.Load(); i = (i + 4) % len(want.Inputs) {
				e.mustPredict("reuse_v1", want.Inputs[i], want.Outputs[i])
				now := time.Now().UnixNano()
				gap := now - last.Swap(now)
				for before := longest.Load(); gap > before && !longest.CompareAndSwap(before, gap); before = longest.Load() {
				}
			}
		})
	}
	began := time.Now()
	uploads.Wait()
	took := time.Since(began)
	loaded.Store(true)
	load.Wait()
	t.Logf("the longest time without an answer: %v", time.Duration(longest.Load()))
	// A server that answers nobody while it loads is silent for nearly all of that time, however slow the machine is.
	if gap := time.Duration(longest.Load()); gap > 2*time.Second && gap > took/2 {
		t.Errorf("answers have ceased for %v of the %v that loading took", gap, took)
	}
	other := expected(t, "reuse_v2")
	for i := range 12 {
		e.mustPredict(fmt.Sprintf("other_v%d", i), other.Inputs[i], other.Outputs[i])
	}
}
