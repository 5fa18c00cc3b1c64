package main

import (
	"bytes"
	"strings"
)

// head is what counts of the header of a plain prediction.
type head struct {
	route  *route
	size   int    // of the header, in bytes
	length int    // of the body
	token  []byte // the header Authorization
}

// verdict is what is known of the beginning of a request.
type verdict int

const (
	incomplete verdict = iota // it may become a plain prediction
	plain                     // its header is whole
	other                     // it is net/http's
)

// parseHead reads the header of a request. It takes few forms and leaves the rest to net/http, so that the two can't differ in what a request
// is: a prediction by POST and HTTP/1.1, one Host, one Content-Length, nothing about transfer or connection other than keep-alive.
func (s *server) parseHead(text []byte) (h head, _ verdict) {
	line, rest, whole := bytes.Cut(text, []byte("\r\n"))
	for _, route := range s.predictions {
		if whole && string(line) == route.line {
			h.route = route
		} else if !whole && strings.HasPrefix(route.line+"\r", string(line)) {
			return h, incomplete
		}
	}
	if h.route == nil {
		return h, other
	}
	end := bytes.Index(text, []byte("\r\n\r\n"))
	if end < 0 && len(text) <= maxHeaderBytes && bytes.Count(text, []byte("\n")) == bytes.Count(text, []byte("\r\n")) {
		return h, incomplete
	} else if end < 0 || end > maxHeaderBytes {
		return h, other
	}
	h.size, h.length = end+4, -1

	hosts := 0
	for rest = text[len(line)+2 : end+2]; len(rest) > 0; {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, found := bytes.Cut(line, []byte(":"))
		if !found || !isName(name) || !isValue(value) {
			return h, other
		}
		value = bytes.Trim(value, " \t")
		switch {
		case is(name, "host"):
			hosts++
		case is(name, "content-length"):
			if h.length >= 0 || !isLength(value) {
				return h, other
			}
			h.length = 0
			for _, digit := range value {
				h.length = 10*h.length + int(digit-'0')
			}
		case is(name, "authorization"):
			if h.token != nil {
				return h, other
			}
			h.token = value
		case is(name, "connection"):
			if !is(value, "keep-alive") {
				return h, other
			}
		case is(name, "transfer-encoding"), is(name, "content-encoding"), is(name, "expect"), is(name, "te"), is(name, "trailer"), is(name, "upgrade"):
			return h, other
		}
	}
	if hosts != 1 || h.length < 0 {
		return h, other
	}
	return h, plain
}

// is compares without regard to case; text is in lower case.
func is(got []byte, text string) bool {
	return len(got) == len(text) && strings.EqualFold(string(got), text)
}

// isName takes the header names that are in use; net/http takes some more.
func isName(text []byte) bool {
	for _, c := range text {
		if c|0x20 < 'a' && c-'0' > 9 && c != '-' || c|0x20 > 'z' {
			return false
		}
	}
	return len(text) > 0
}

func isValue(text []byte) bool {
	for _, c := range text {
		if c < ' ' && c != '\t' || c > '~' {
			return false
		}
	}
	return true
}

// isLength takes a number that no sum of it overflows.
func isLength(text []byte) bool {
	for _, c := range text {
		if c-'0' > 9 {
			return false
		}
	}
	return len(text) > 0 && len(text) < 10
}
