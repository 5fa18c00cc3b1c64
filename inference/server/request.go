package main

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unsafe"
)

// request is a prediction as it came and as it is answered. Its slices are kept and used again: parsing one allocates nothing once they
// have grown. Not for use by two goroutines at once.
type request struct {
	body   []byte
	model  []byte
	keys   [][]byte
	values []float32 // one row after the other
	rows   int
	width  int
	from   uint64 // the connection, 0 where it is not known
	nested bool   // "rows" was sent: the answer is an array of arrays

	ordered []float32
	places  []int
	result  []float32
	reply   []byte
}

// parse reads body. It is a parser of its own, and not encoding/json, because that one makes 0 of a null among the values, takes a field
// twice, and can't name the place of a number that is not finite; all would be predictions for an input that nobody meant.
//
// The error says what is wrong and where. After an error the fields are undefined.
func (q *request) parse() *failure {
	q.model, q.keys, q.values, q.rows, q.width, q.nested = nil, q.keys[:0], q.values[:0], 0, 0, false
	p := &parser{text: q.body}
	var seen struct{ model, keys, values, rows bool }
	once := func(mark *bool, name string) *failure {
		if *mark {
			return badRequest("%s: must be there once, is there twice", name)
		}
		*mark = true
		return nil
	}

	err := p.list('{', '}', func(int) *failure {
		name, err := p.string()
		if err != nil {
			return err
		}
		if !p.take(':') {
			return p.unexpected("a colon after a field's name")
		}
		switch string(name) {
		case "model":
			if err := once(&seen.model, "model"); err != nil {
				return err
			}
			q.model, err = p.string()
			return err
		case "keys":
			if err := once(&seen.keys, "keys"); err != nil {
				return err
			}
			if p.null() { // as Go's encoder writes a list that is none
				return nil
			}
			return p.list('[', ']', func(int) *failure {
				key, err := p.string()
				q.keys = append(q.keys, key)
				return err
			})
		case "values":
			if err := once(&seen.values, "values"); err != nil {
				return err
			}
			q.values = q.values[:0]
			err := p.list('[', ']', func(i int) *failure {
				return q.number(p, func() string { return "values[" + strconv.Itoa(i) + "]" })
			})
			q.rows, q.width = 1, len(q.values)
			return err
		case "rows":
			if err := once(&seen.rows, "rows"); err != nil {
				return err
			}
			q.nested, q.values, q.rows = true, q.values[:0], 0
			return p.list('[', ']', func(row int) *failure {
				before := len(q.values)
				err := p.list('[', ']', func(i int) *failure {
					return q.number(p, func() string { return "rows[" + strconv.Itoa(row) + "][" + strconv.Itoa(i) + "]" })
				})
				if err != nil {
					return err
				}
				width := len(q.values) - before
				if row > 0 && width != q.width {
					return badRequest("rows[%d]: must have as many values as rows[0], which has %d, has %d", row, q.width, width)
				}
				q.rows, q.width = row+1, width
				return nil
			})
		}
		return badRequest("%s: no such field: a prediction has keys, values (or rows) and model", shown(name))
	})
	if err != nil {
		return err
	}
	if p.space(); p.at < len(p.text) {
		return p.unexpected("nothing after the object")
	}
	switch {
	case seen.values && seen.rows:
		return badRequest("rows: must not come with values: send one of the two")
	case !seen.values && !seen.rows:
		return badRequest("values: must be there, is missing")
	case q.rows == 0:
		return badRequest("rows: must hold at least one row, is empty")
	case q.width == 0:
		return badRequest("values: must not be empty")
	}
	return nil
}

// number appends the number that follows; where says its place, and is asked only in an error.
func (q *request) number(p *parser, where func() string) *failure {
	token := p.number()
	if token == nil {
		return badRequest("%s: must be a finite number, is %s", where(), shown(p.word()))
	}
	value, err := strconv.ParseFloat(unsafe.String(&token[0], len(token)), 32)
	if err != nil {
		return badRequest("%s: must be a finite float32, is %s", where(), shown(token))
	}
	q.values = append(q.values, float32(value))
	return nil
}

// parser reads JSON (RFC 8259) from text, at the place at.
type parser struct {
	text []byte
	at   int
}

func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// take reads c, with space before it, and says whether it was there.
func (p *parser) take(c byte) bool {
	p.space()
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

// list reads a bracketed list, calling element for each of its elements with its number.
func (p *parser) list(open, shut byte, element func(i int) *failure) *failure {
	if !p.take(open) {
		return p.unexpected("a " + string(open))
	}
	if p.take(shut) {
		return nil
	}
	for i := 0; ; i++ {
		if err := element(i); err != nil {
			return err
		}
		if p.take(',') {
			continue
		}
		if p.take(shut) {
			return nil
		}
		return p.unexpected("a comma or a " + string(shut))
	}
}

// null reads `null`, where that is next.
func (p *parser) null() bool {
	p.space()
	found := bytes.HasPrefix(p.text[p.at:], []byte("null"))
	if found {
		p.at += len("null")
	}
	return found
}

// string reads a string; what it returns may be a part of text.
func (p *parser) string() ([]byte, *failure) {
	if !p.take('"') {
		return nil, p.unexpected("a string")
	}
	start, escaped := p.at, false
	for ; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == '"':
			content := p.text[start:p.at]
			p.at++
			if !escaped {
				return content, nil
			}
			var whole string
			if err := json.Unmarshal(p.text[start-1:p.at], &whole); err != nil {
				p.at = start
				return nil, p.unexpected("a string with valid escapes")
			}
			return []byte(whole), nil
		case c == '\\':
			escaped = true
			p.at++
		case c < ' ':
			return nil, p.unexpected("no control character in a string")
		}
	}
	p.at = len(p.text)
	return nil, p.unexpected("the end of a string")
}

// number reads the text of a number, or returns nil and stays where it is.
func (p *parser) number() []byte {
	p.space()
	start, at := p.at, p.at
	digits := func() bool {
		from := at
		for at < len(p.text) && p.text[at]-'0' <= 9 {
			at++
		}
		return at > from
	}
	is := func(a, b byte) bool {
		if at < len(p.text) && (p.text[at] == a || p.text[at] == b) {
			at++
			return true
		}
		return false
	}
	is('-', '-')
	if !is('0', '0') && !digits() {
		return nil
	}
	if is('.', '.') && !digits() {
		return nil
	}
	if is('e', 'E') {
		is('+', '-')
		if !digits() {
			return nil
		}
	}
	p.at = at
	return p.text[start:at]
}

// word is what stands at this place up to the next delimiter, for error messages.
func (p *parser) word() []byte {
	end := p.at
	for end < len(p.text) && p.text[end] != ',' && p.text[end] != ']' && p.text[end] != '}' && p.text[end] > ' ' {
		end++
	}
	return p.text[p.at:end]
}

func (p *parser) unexpected(wanted string) *failure {
	p.space()
	if p.at >= len(p.text) {
		return badRequest("body: not JSON: %s was expected, the body ends", wanted)
	}
	return badRequest("body: not JSON of a prediction: %s was expected at byte %d, there is %q", wanted, p.at, p.text[p.at])
}
