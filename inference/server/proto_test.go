package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// protoRow writes a Row; packed as proto3 does it, or each value by itself as proto2 does.
func protoRow(name string, keys []string, values []float32, packed bool) (b []byte) {
	for _, key := range keys {
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), key)
	}
	var all []byte
	for _, value := range values {
		if !packed {
			b = protowire.AppendTag(b, 2, protowire.Fixed32Type)
			b = protowire.AppendFixed32(b, math.Float32bits(value))
		}
		all = protowire.AppendFixed32(all, math.Float32bits(value))
	}
	if packed {
		b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), all)
	}
	return protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), name)
}

// class is one of Predictions.
type class struct {
	label       string
	probability float32
}

// classes reads Predictions. A stock TFaaS leaves the labels out.
func classes(t *testing.T, b []byte) (all []class) {
	t.Helper()
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if number != 1 || kind != protowire.BytesType {
			t.Fatalf("field %d of type %d (%d)", number, kind, n)
		}
		content, m := protowire.ConsumeBytes(b[n:])
		if m < 0 {
			t.Fatal(protowire.ParseError(m))
		}
		b = b[n+m:]
		var c class
		for len(content) > 0 {
			number, kind, n := protowire.ConsumeTag(content)
			switch {
			case number == 1 && kind == protowire.BytesType:
				c.label, m = protowire.ConsumeString(content[n:])
			case number == 2 && kind == protowire.Fixed32Type:
				var bits uint32
				bits, m = protowire.ConsumeFixed32(content[n:])
				c.probability = math.Float32frombits(bits)
			default:
				t.Fatalf("field %d of type %d (%d) of a class", number, kind, n)
			}
			if m < 0 {
				t.Fatal(protowire.ParseError(m))
			}
			content = content[n+m:]
		}
		all = append(all, c)
	}
	return all
}

func labels(t *testing.T, b []byte) (all []string) {
	t.Helper()
	for _, c := range classes(t, b) {
		all = append(all, c.label)
	}
	return all
}

func probabilities(t *testing.T, b []byte) (all []float32) {
	t.Helper()
	for _, c := range classes(t, b) {
		all = append(all, c.probability)
	}
	return all
}

// TestProtoLabels looks that the labels are those of the file that params.json names, and the edges of the buckets where it names none.
func TestProtoLabels(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1", "reuse_v2"), nil)
	row := expected(t, "reuse_v1").Inputs[0]
	for name, want := range map[string][]string{
		"reuse_v1": {"within_3600s", "within_86400s", "later_or_never"}, "reuse_v2": {"3600", "86400", "+Inf"},
	} {
		_, answer := e.call("POST", "/proto", bytes.NewReader(protoRow(name, nil, row, true)))
		if got := labels(t, []byte(answer)); !slices.Equal(got, want) {
			t.Errorf("%s: labels %q, must be %q", name, got, want)
		}
	}
	for what, edit := range map[string]func(file, content string) string{
		"labels.txt: must have a line for each of the 3 outputs, has 2": func(file, content string) string {
			return strings.TrimSuffix(content, map[string]string{"labels.txt": "later_or_never\n"}[file])
		},
		"labels.txt, the labels that params.json names: can't be read": func(file, content string) string {
			return map[bool]string{file != "labels.txt": content}[true]
		},
		"params.json: labels: must be a file in the model's folder": func(file, content string) string {
			return strings.ReplaceAll(content, `"labels.txt"`, `"../reuse_v1/labels.txt"`)
		},
	} {
		status, answer := e.admin("POST", "/upload", archive(t, packed(t, "reuse_v1", "other_v1", edit)...))
		mustFail(t, status, answer, 422, what)
	}
}

func TestProto(t *testing.T) {
	e := start(t, modelDir(t, "reuse_v1"), nil)
	want := expected(t, "reuse_v1")
	for i, row := range want.Inputs[:20] {
		var keys []string
		turned := make([]float32, len(row))
		for j := range row {
			keys = append(keys, fmt.Sprintf("f%d", len(row)-1-j))
			turned[j] = row[len(row)-1-j]
		}
		for _, body := range [][]byte{
			protoRow("reuse_v1", nil, row, true), protoRow("reuse_v1", nil, row, false), protoRow("reuse_v1", keys, turned, true),
		} {
			for _, path := range []string{"/proto", "/predict/proto"} {
				status, answer := e.call("POST", path, bytes.NewReader(body))
				if status != 200 {
					t.Fatalf("answered %d %s", status, answer)
				}
				if got := probabilities(t, []byte(answer)); !near(got, want.Outputs[i]) {
					t.Errorf("answered %v, Keras %v", got, want.Outputs[i])
				}
			}
		}
	}
	row := want.Inputs[0]
	whole := protoRow("reuse_v1", nil, row, true)
	for _, c := range []struct {
		body   []byte
		status int
		want   string
	}{
		{nil, 400, "must not be empty"},
		{protoRow("reuse_v9", nil, row, true), 404, "reuse_v9"},
		{protoRow("reuse_v1", nil, row[1:], true), 400, "are 11"},
		{protoRow("reuse_v1", nil, append([]float32{float32(math.NaN())}, row[1:]...), true), 400, "value[0]"},
		{protoRow("reuse_v1", nil, append([]float32{float32(math.Inf(1))}, row[1:]...), false), 400, "value[0]"},
		{protoRow("reuse_v1", []string{"f0"}, row, true), 400, "as many as the keys"},
		{whole[:len(whole)-1], 400, "not a protobuf Row"},
		{append(bytes.Clone(whole), 0x18, 1), 400, "field 3 of wire type 0"},
		{append(bytes.Clone(whole), 0x22, 0), 400, "field 4"},
		{append(bytes.Clone(whole), 0x1a, 1, 'x'), 400, "is there 2 times"},
		{append(bytes.Clone(whole), 0x12, 2, 0, 0), 400, "not a protobuf Row"},
		{[]byte(`{"model":"reuse_v1"}`), 400, "body"},
	} {
		status, body := e.call("POST", "/proto", bytes.NewReader(c.body))
		mustFail(t, status, body, c.status, c.want)
	}
	status, body := e.call("GET", "/proto", strings.NewReader(""))
	mustFail(t, status, body, 405, "must be POST")
}

// FuzzProto looks that no Row breaks the parser, and that what it takes is finite.
func FuzzProto(f *testing.F) {
	f.Add(protoRow("m", []string{"a", "b"}, []float32{1, 2}, true))
	f.Add(protoRow("m", nil, []float32{1, 2}, false))
	f.Add([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, body []byte) {
		q := &request{body: body}
		if q.parseProto() != nil {
			return
		}
		if q.rows != 1 || q.width != len(q.values) || q.width == 0 {
			t.Fatalf("%x: %d rows of %d, %d values", body, q.rows, q.width, len(q.values))
		}
		for _, value := range q.values {
			if value-value != 0 {
				t.Fatalf("%x: value %v", body, value)
			}
		}
	})
}
