package main

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"

	"smartcache/inference/server/tf"
)

// goldenTolerance is how far an answer may be from a golden one: float32 sums in another order differ by less.
const goldenTolerance = 1e-5

// model is a loaded model: it does not change, and is safe for use from several goroutines. Whoever has it from registry.acquire must
// release it; it is closed only when nobody has it.
type model struct {
	*bundle
	digest   string
	place    map[string]int // of a feature among the input values
	tf       *tf.Model
	batcher  *batcher
	inflight sync.WaitGroup
	complain sync.Once // a fault of its answers is logged once, and counted always
}

// openModel loads the model NAME from folder and compares its answers with its golden rows, where it has any, which also warms it up; observe is
// told the rows of each run that predicts. An error says what is wrong with the model; nothing stays loaded then.
func openModel(folder, name string, how batching, observe func(rows int)) (_ *model, err error) {
	b, err := readBundle(folder, name)
	if err != nil {
		return nil, err
	}
	m := &model{bundle: b, place: map[string]int{}}
	for i, feature := range b.features {
		m.place[feature] = i
	}
	if m.digest, err = digest(folder); err != nil {
		return nil, pathless(err)
	}
	if b.plain {
		err = m.openPlain(folder)
	} else if m.tf, err = tf.Load(folder, b.inputNode, b.outputNode); err == nil {
		err = m.check()
	}
	if err != nil {
		if m.tf != nil {
			m.tf.Close()
		}
		return nil, err
	}
	m.batcher = &batcher{batching: how.within(max(m.width, m.outputs)), width: m.width, outputs: m.outputs, observe: observe,
		predict: func(values, result []float32) error { return m.tf.Run(values, result, m.outputs) }}
	return m, nil
}

func (m *model) release() { m.inflight.Done() }

// check compares the answers for the golden rows, one by one and all at once.
func (m *model) check() error {
	if m.tf.Width() != m.width {
		return fmt.Errorf("bundle.json: schema.names: must be as many as the SavedModel's input has values, %d, are %d", m.tf.Width(), m.width)
	}
	var all []float32
	result := make([]float32, len(m.golden.Inputs)*m.outputs)
	for i, row := range m.golden.Inputs {
		one := result[:m.outputs]
		if err := m.tf.Run(row, one, m.outputs); err != nil {
			return fmt.Errorf("golden.json: row %d: %w", i, err)
		}
		if err := m.compare(i, one); err != nil {
			return err
		}
		all = append(all, row...)
	}
	if err := m.tf.Run(all, result, m.outputs); err != nil {
		return fmt.Errorf("golden.json: all rows at once: %w", err)
	}
	for i := range m.golden.Inputs {
		if err := m.compare(i, result[i*m.outputs:(i+1)*m.outputs]); err != nil {
			return err
		}
	}
	return nil
}

func (m *model) compare(row int, got []float32) error {
	for i, want := range m.golden.Outputs[row] {
		// Written so that a NaN is a difference.
		if !(math.Abs(float64(got[i])-float64(want)) <= goldenTolerance) {
			return fmt.Errorf("golden.json: row %d, output %d: the model answers %v, must answer %v to within %v", row, i, got[i], want, goldenTolerance)
		}
	}
	return nil
}

// predict computes q.result from what q.parse read. The values may come in any order if the keys say which: q.keys names the columns.
func (m *model) predict(q *request) *failure {
	values, err := m.arrange(q)
	if err != nil {
		return err
	}
	if err := m.checkAnswer(q.rows); err != nil {
		return err
	}
	size := q.rows * m.outputs
	if cap(q.result) < size {
		q.result = make([]float32, size)
	}
	q.result = q.result[:size]
	if err := m.batcher.run(q.from, values, q.result); err != nil {
		return fail(http.StatusInternalServerError, "model_failed", "model %s failed: %v", m.name, err)
	}
	for i, value := range q.result {
		if math.IsNaN(float64(value)) || math.IsInf(float64(value), 0) {
			return fail(http.StatusInternalServerError, "non_finite_output",
				"model %s answered %v as output %d of row %d: no such answer is passed on", m.name, value, i%m.outputs, i/m.outputs)
		}
	}
	return nil
}

// arrange returns the values in the order of the model's features.
func (m *model) arrange(q *request) ([]float32, *failure) {
	if len(q.keys) > 0 && len(q.keys) != q.width {
		return nil, badRequest("values: must be as many as the keys, %d, are %d", len(q.keys), q.width)
	}
	if len(q.keys) == 0 || m.plain {
		if q.width != m.width {
			return nil, badRequest("values: must be the %d features of model %s, are %d", m.width, m.name, q.width)
		}
		return q.values, nil
	}
	same := len(q.keys) == len(m.features)
	for i := 0; same && i < len(q.keys); i++ {
		same = string(q.keys[i]) == m.features[i]
	}
	if same {
		return q.values, nil
	}

	q.places = q.places[:0]
	for i, key := range q.keys {
		place, known := m.place[string(key)]
		if !known {
			return nil, badRequest("keys[%d]: must be a feature of model %s, is %s", i, m.name, shown(key))
		}
		for earlier, other := range q.places {
			if other == place {
				return nil, badRequest("keys[%d]: must be there once, %s is keys[%d] too", i, shown(key), earlier)
			}
		}
		q.places = append(q.places, place)
	}
	if len(q.keys) != len(m.features) {
		for place, feature := range m.features {
			if !slices.Contains(q.places, place) {
				return nil, badRequest("keys: must name all %d features of model %s, %s is missing", len(m.features), m.name, shown(feature))
			}
		}
	}
	q.ordered = append(q.ordered[:0], q.values...)
	for row := 0; row < len(q.values); row += q.width {
		for i, place := range q.places {
			q.ordered[row+place] = q.values[row+i]
		}
	}
	return q.ordered, nil
}
