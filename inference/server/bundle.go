package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The nodes that TFaaS takes where params.json names none.
const (
	defaultInputNode  = "serving_default_inputs_input"
	defaultOutputNode = "StatefulPartitionedCall:0"
)

var modelName = regexp.MustCompile(`^[A-Za-z0-9_]{1,128}$`)

// bundle is what the files of a model's folder say beside the SavedModel itself.
type bundle struct {
	name       string
	params     json.RawMessage // params.json as it is, which GET /models and GET /params answer
	inputNode  string
	outputNode string
	features   []string // names of the input values, in order; none of a plain model (plain.go)
	width      int      // values of one input row
	outputs    int      // values of one output row
	labels     []string // of the outputs: the lines of params.json's labels, else the upper edges of their buckets, in seconds
	golden     golden
	plain      bool
	missing    []string // what a plain model lacks, and what follows from that
}

// golden are rows that the model answered when it was made.
type golden struct {
	Inputs  [][]float32 `json:"inputs"`
	Outputs [][]float32 `json:"outputs"`
}

// readBundle reads and checks the folder of the model NAME. An error names the file and what in it is wrong.
func readBundle(folder, name string) (*bundle, error) {
	b := &bundle{name: name}
	var params struct {
		Name       string `json:"name"`
		Labels     string `json:"labels"`
		InputNode  string `json:"input_node"`
		OutputNode string `json:"output_node"`
		// As older versions of TFaaS call them.
		OldInputNode  string `json:"inputNode"`
		OldOutputNode string `json:"outputNode"`
	}
	raw, err := readJSON(folder, "params.json", &params)
	if err != nil {
		return nil, err
	}
	if params.Name != "" && params.Name != name {
		return nil, fmt.Errorf("params.json: name: must be that of the folder, %q, is %q", name, params.Name)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, fmt.Errorf("params.json: %w", err)
	}
	b.params = compact.Bytes()
	b.inputNode = cmp.Or(params.InputNode, params.OldInputNode, defaultInputNode)
	b.outputNode = cmp.Or(params.OutputNode, params.OldOutputNode, defaultOutputNode)
	if b.plain = isPlain(folder); b.plain {
		if b.labels, err = readLabels(folder, params.Labels); err != nil {
			b.missing = append(b.missing, err.Error())
		}
		return b, nil
	}

	var about struct {
		Format int    `json:"format"`
		Name   string `json:"name"`
		Schema struct {
			Names []string `json:"names"`
		} `json:"schema"`
		BucketEdges []float64 `json:"bucket_edges_s"`
	}
	if _, err := readJSON(folder, "bundle.json", &about); err != nil {
		return nil, err
	}
	if about.Format != 1 {
		return nil, fmt.Errorf("bundle.json: format: must be 1, is %d", about.Format)
	}
	if about.Name != name {
		return nil, fmt.Errorf("bundle.json: name: must be that of the folder, %q, is %q", name, about.Name)
	}
	if len(about.Schema.Names) == 0 || len(about.BucketEdges) == 0 {
		return nil, fmt.Errorf("bundle.json: schema.names and bucket_edges_s must not be empty")
	}
	b.features, b.width, b.outputs = about.Schema.Names, len(about.Schema.Names), len(about.BucketEdges)+1
	if err := cmp.Or(checkWidth("bundle.json: schema.names", b.width), checkWidth("bundle.json: the outputs, bucket_edges_s and one,", b.outputs)); err != nil {
		return nil, err
	}
	if b.labels, err = readLabels(folder, params.Labels); err != nil {
		return nil, err
	}
	if b.labels == nil {
		for _, edge := range about.BucketEdges {
			b.labels = append(b.labels, strconv.FormatFloat(edge, 'f', -1, 64))
		}
		b.labels = append(b.labels, "+Inf")
	}
	if len(b.labels) != b.outputs {
		return nil, fmt.Errorf("%s: must have a line for each of the %d outputs, has %d", params.Labels, b.outputs, len(b.labels))
	}
	known := map[string]bool{}
	for _, feature := range b.features {
		if known[feature] {
			return nil, fmt.Errorf("bundle.json: schema.names: must differ from each other, %q is there twice", feature)
		}
		known[feature] = true
	}

	if _, err := readJSON(folder, "golden.json", &b.golden); err != nil {
		return nil, err
	}
	if len(b.golden.Inputs) == 0 || len(b.golden.Inputs) != len(b.golden.Outputs) {
		return nil, fmt.Errorf("golden.json: must hold as many inputs as outputs and at least one, has %d and %d", len(b.golden.Inputs), len(b.golden.Outputs))
	}
	for i := range b.golden.Inputs {
		if len(b.golden.Inputs[i]) != len(b.features) || len(b.golden.Outputs[i]) != b.outputs {
			return nil, fmt.Errorf("golden.json: row %d: must have %d inputs and %d outputs, has %d and %d", i, len(b.features), b.outputs,
				len(b.golden.Inputs[i]), len(b.golden.Outputs[i]))
		}
	}
	return b, nil
}

// readLabels returns the lines of the file of labels that params.json names; none where it names none.
func readLabels(folder, file string) ([]string, error) {
	if file == "" {
		return nil, nil
	}
	if !staysInside(file) {
		return nil, fmt.Errorf("params.json: labels: must be a file in the model's folder, is %s", shown(file))
	}
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		return nil, fmt.Errorf("%s, the labels that params.json names: can't be read: %w", file, pathless(err))
	}
	var labels []string
	for line := range strings.Lines(string(text)) {
		label := strings.TrimRight(line, "\r\n")
		// A string of a protobuf is: a client would refuse the whole answer.
		if !utf8.ValidString(label) {
			return nil, fmt.Errorf("%s: line %d: must be UTF-8, is %s", file, len(labels)+1, shown(label))
		}
		labels = append(labels, label)
	}
	return labels, nil
}

func readJSON(folder, file string, into any) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		return nil, fmt.Errorf("%s: can't be read: %w", file, pathless(err))
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return raw, nil
}

// digest identifies the content of a folder: the SHA-256 over the path, length and bytes of each of its files, in the order of their
// paths. Times, modes and empty folders do not count: they are not what is served.
func digest(folder string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if !entry.Type().IsRegular() {
			return fmt.Errorf("%s: must be a file or a folder", entry.Name())
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%q %d\n", relative, info.Size())
		_, err = io.Copy(sum, file)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

// pathless drops the path from an error of the file system: a client has no business with it.
func pathless(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return e.Err
	}
	return err
}
