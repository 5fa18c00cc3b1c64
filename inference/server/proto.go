package main

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of TFaaS, which are small enough to be read and written without generated code:
//
//	message Row         { repeated string key = 1; repeated float value = 2; string model = 3; }
//	message Class       { string label = 1; float probability = 2; }
//	message Predictions { repeated Class prediction = 1; }
var formatProto = &format{"application/x-protobuf", (*request).parseProto, (*request).encodeProto}

// parseProto reads body as a Row. It is as strict as parse: a field that is not a Row's is an error, and so is a number that is not finite.
func (q *request) parseProto() *failure {
	q.model, q.keys, q.values, q.nested = nil, q.keys[:0], q.values[:0], false
	models := 0
	for rest := q.body; len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return badProto(n)
		}
		rest = rest[n:]
		switch {
		case kind == protowire.BytesType && number >= 1 && number <= 3:
			var content []byte
			if content, n = protowire.ConsumeBytes(rest); n < 0 {
				return badProto(n)
			}
			switch number {
			case 1:
				q.keys = append(q.keys, content)
			case 2: // packed, as proto3 writes it
				for len(content) > 0 {
					bits, n := protowire.ConsumeFixed32(content)
					if n < 0 {
						return badProto(n)
					}
					content = content[n:]
					q.values = append(q.values, math.Float32frombits(bits))
				}
			case 3:
				q.model = content
				models++
			}
		case kind == protowire.Fixed32Type && number == 2:
			var bits uint32
			if bits, n = protowire.ConsumeFixed32(rest); n < 0 {
				return badProto(n)
			}
			q.values = append(q.values, math.Float32frombits(bits))
		default:
			return badRequest("body: field %d of wire type %d: a Row has key (1) and model (3), strings, and value (2), floats", number, kind)
		}
		rest = rest[n:]
	}
	for i, value := range q.values {
		if math.IsNaN(float64(value)) || math.IsInf(float64(value), 0) {
			return badRequest("value[%d]: must be a finite number, is %v", i, value)
		}
	}
	if models > 1 {
		return badRequest("model: must be there once, is there %d times", models)
	}
	if len(q.values) == 0 {
		return badRequest("value: must not be empty")
	}
	q.rows, q.width = 1, len(q.values)
	return nil
}

func badProto(code int) *failure {
	return badRequest("body: not a protobuf Row: %v", protowire.ParseError(code))
}

// encodeProto writes result to reply as Predictions, with the model's labels.
func (q *request) encodeProto(m *model) {
	b := q.reply[:0]
	for i, value := range q.result {
		label := m.labels[i]
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(protowire.SizeTag(1)+protowire.SizeBytes(len(label))+protowire.SizeTag(2)+protowire.SizeFixed32()))
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendString(b, label)
		b = protowire.AppendTag(b, 2, protowire.Fixed32Type)
		b = protowire.AppendFixed32(b, math.Float32bits(value))
	}
	q.reply = b
}
