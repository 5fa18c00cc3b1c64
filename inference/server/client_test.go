package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// clientForm is a form as TFaaS's own client writes it (src/python/tfaas_client.py): the fields first, then the files, those of the type
// application/octet-stream in base64 of one line and a line feed. parts: field, filename (empty: none), content, by turns.
func clientForm(parts ...string) (body *bytes.Buffer, kind string) {
	const boundary = "192.0.2.1.1000.1234.1700000000.123.1"
	body = &bytes.Buffer{}
	for i := 0; i < len(parts); i += 3 {
		field, file, content := parts[i], parts[i+1], parts[i+2]
		fmt.Fprintf(body, "--%s\r\nContent-Disposition: form-data; name=\"%s\"", boundary, field)
		if file != "" {
			kind := "text/plain"
			if strings.HasSuffix(file, ".pb") {
				kind, content = "application/octet-stream", base64.StdEncoding.EncodeToString([]byte(content))+"\n"
			}
			fmt.Fprintf(body, "; filename=\"%s\"\r\nContent-Type: %s", file, kind)
		}
		fmt.Fprintf(body, "\r\n\r\n%s\r\n", content)
	}
	fmt.Fprintf(body, "--%s--\r\n", boundary)
	return body, "multipart/form-data; boundary=" + boundary
}

// TestClient makes the calls of TFaaS's own client, byte for byte, but for the token.
func TestClient(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), nil)
	model, err := os.ReadFile(filepath.Join(bundlesFolder(t), "Many", "saved_model.pb"))
	if err != nil {
		t.Fatal(err)
	}
	params := `{"name":"ImageModel","model":"tf_model.pb","labels":"labels.txt","inputNode":"serving_default_inputs_input","outputNode":"PartitionedCall:0"}`
	parts := []string{"inputNode", "", "serving_default_inputs_input", "name", "", "ImageModel", "options", "", "null",
		"params", "/home/u/params.json", params, "model", "/home/u/tf_model.pb", string(model), "labels", "/home/u/labels.txt", "one\ntwo\n"}
	upload := func(header ...string) (int, string) {
		body, kind := clientForm(parts...)
		return e.admin("POST", "/upload", body, append(header, "Content-Type", kind)...)
	}
	status, answer := upload("Content-Encoding", "gzip")
	mustFail(t, status, answer, 400, "archive:")
	status, answer = upload("Content-Encoding", "br")
	mustFail(t, status, answer, 415, "base64 of a form")
	if status, answer := upload("Content-Encoding", "base64"); status != 200 {
		t.Fatalf("upload: %d %s", status, answer)
	}
	if stored, err := os.ReadFile(filepath.Join(e.folder, "ImageModel", "labels.txt")); err != nil || string(stored) != "one\ntwo\n" {
		t.Errorf("labels.txt: %q %v", stored, err)
	}
	status, answer = e.call("POST", "/json", asked(t, "ImageModel", 1))
	if status != 200 {
		t.Errorf("/json: %d %.100s", status, answer)
	}
	// As curl sends it, in the order of its command line: the name may come last, and nothing is in base64.
	body, kind := form(t, "", entry{name: "params.json", content: strings.ReplaceAll(params, "ImageModel", "Other")}, entry{name: "saved_model.pb", content: string(model)})
	text := new(bytes.Buffer)
	if _, err := text.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	_, boundary, _ := strings.Cut(kind, "boundary=")
	last := "--" + boundary + "\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\nOther\r\n--" + boundary + "--\r\n"
	whole := strings.Replace(text.String(), "--"+boundary+"--\r\n", last, 1)
	if status, answer := e.admin("POST", "/upload", strings.NewReader(whole), "Content-Type", kind); status != 200 {
		t.Errorf("the name last: %d %s", status, answer)
	}

	sent, kind := clientForm(parts...)
	broken := strings.Replace(sent.String(), base64.StdEncoding.EncodeToString(model), "****", 1)
	status, answer = e.admin("POST", "/upload", strings.NewReader(broken), "Content-Type", kind, "Content-Encoding", "base64")
	mustFail(t, status, answer, 400, "base64")

	remove := func(parts ...string) (int, string) {
		body, kind := clientForm(parts...)
		return e.admin("DELETE", "/delete", body, "Content-Type", kind)
	}
	status, answer = remove("name", "", "ImageModel")
	mustFail(t, status, answer, 400, "model: must be there")
	status, answer = remove("model", "", "../ImageModel")
	mustFail(t, status, answer, 400, "A-Z a-z 0-9 _")
	form, kind := clientForm("model", "", "ImageModel")
	status, answer = e.call("DELETE", "/delete", form, "Content-Type", kind)
	mustFail(t, status, answer, 401, "Authorization")
	long, kind := clientForm("model", "", strings.Repeat("x", 1<<20))
	status, answer = e.admin("DELETE", "/delete", long, "Content-Type", kind)
	mustFail(t, status, answer, 413, "at most 1048576 bytes")
	if status, answer := remove("model", "", "ImageModel"); status != 200 {
		t.Errorf("delete: %d %s", status, answer)
	}
	if status, answer := e.admin("DELETE", "/delete?model=Other", nil); status != 200 {
		t.Errorf("delete by the query: %d %s", status, answer)
	}
	status, answer = remove("model", "", "ImageModel")
	mustFail(t, status, answer, 404, "ImageModel")
	if entries, err := os.ReadDir(e.folder); err != nil || len(entries) != 2 { // reuse_v1 and the lock
		t.Errorf("left: %v %v", entries, err)
	}

	// GET /params tells the one that answers who names none.
	status, answer = e.call("GET", "/params", nil)
	mustFail(t, status, answer, 404, "no default model")
	if status, answer := e.admin("POST", "/params", strings.NewReader(`{"name":"reuse_v1"}`)); status != 200 {
		t.Fatalf("POST /params: %d %s", status, answer)
	}
	if status, answer := e.call("GET", "/params", nil); status != 200 || !strings.Contains(answer, `"name":"reuse_v1"`) {
		t.Errorf("GET /params: %d %s", status, answer)
	}
	status, answer = e.admin("PUT", "/params", nil)
	mustFail(t, status, answer, 405, "GET, POST")
}
