package main

import (
	"fmt"
	"net/http"
)

// What a model's own word may cost, whoever has uploaded it. A model of this kind has tens of features and outputs; these bounds are far above
// that, and far below what a machine has no memory for.
const (
	// maxWidth is the most values of a row, in or out.
	maxWidth = 1 << 16
	// maxAnswer is the most numbers that are answered to one request, or come out of one run of a model.
	maxAnswer = 1 << 20
)

// checkWidth refuses a model of too many features or outputs; what says which, and where that stands.
func checkWidth(what string, width int) error {
	if width > maxWidth {
		return fmt.Errorf("%s: must be at most %d, are %d", what, maxWidth, width)
	}
	return nil
}

// checkAnswer refuses a request whose answer would be too long.
func (m *model) checkAnswer(rows int) *failure {
	if rows > maxAnswer/m.outputs {
		return fail(http.StatusRequestEntityTooLarge, "too_large", "rows: must be answered with at most %d numbers, %d rows of the %d outputs of model %s are more: send fewer at a time",
			maxAnswer, rows, m.outputs, m.name)
	}
	return nil
}

// within is how rows are put together for a model of so many values a row.
func (b batching) within(width int) batching {
	b.rows = max(1, min(b.rows, maxAnswer/width))
	return b
}
