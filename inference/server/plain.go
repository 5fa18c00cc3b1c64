package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"smartcache/inference/server/tf"
)

// A plain model is a folder as stock TFaaS serves it: params.json and a SavedModel, and of a bundle neither bundle.json nor golden.json. It is
// served as TFaaS would: in the order of its values, whatever the keys are called. What cannot be checked is said once, as it is loaded.

// isPlain says whether the folder has neither of the files that make a bundle; one of them alone is a damaged bundle.
func isPlain(folder string) bool {
	for _, file := range []string{"bundle.json", "golden.json"} {
		if _, err := os.Lstat(filepath.Join(folder, file)); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// openPlain loads the SavedModel of a plain model and finds out what bundle.json would say: how many values go in and come out. For the latter it
// predicts a row of zeros, which also warms it up; a model that takes none is warmed up with one of ones. One that has answered neither is not
// served: whoever asks it first would learn that it can't answer.
func (m *model) openPlain(folder string) (err error) {
	m.missing = append(m.missing, "bundle.json: the names of its features are not known, so keys are not compared with them",
		"golden.json: its answers are compared with nothing")
	if m.tf, err = tf.Load(folder, m.inputNode, m.outputNode); err != nil {
		// Stock TFaaS has these names compiled in, whatever params.json says.
		var standard error
		if m.tf, standard = tf.Load(folder, defaultInputNode, defaultOutputNode); standard != nil {
			return err
		}
		m.missing = append(m.missing, fmt.Sprintf("params.json: %v, so %s and %s are used", err, defaultInputNode, defaultOutputNode))
	}
	m.width = m.tf.Width()
	if err = checkWidth("input_node: the values of a row", m.width); err != nil {
		return err
	}
	if m.outputs, err = m.tf.OutWidth(); err != nil {
		return err
	}
	if err = checkWidth("output_node: the values of a row", m.outputs); err != nil {
		return err
	}
	row, result := make([]float32, m.width), make([]float32, m.outputs)
	if err := m.tf.Run(row, result, m.outputs); err != nil {
		m.missing = append(m.missing, fmt.Sprintf("a row of zeros: it does not take one, and was warmed up with one of ones: %v", err))
		for i := range row {
			row[i] = 1
		}
		if err := m.tf.Run(row, result, m.outputs); err != nil {
			return fmt.Errorf("warm-up: it must answer a row of zeros or one of ones, and fails at both: %w", err)
		}
	}
	for _, value := range result {
		if math.IsNaN(float64(value)) || math.IsInf(float64(value), 0) {
			m.missing = append(m.missing, "warm-up: its answer is not finite")
			break
		}
	}
	if len(m.labels) != m.outputs {
		m.missing = append(m.missing, fmt.Sprintf("labels: it has %d for %d outputs, so none are answered", len(m.labels), m.outputs))
		m.labels = make([]string, m.outputs)
	}
	return nil
}
