package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"syscall"
)

// failure is an answer other than success: what the client is told, and the kind under which it is counted. Kinds are few and fixed, as
// they are values of a metric's label.
type failure struct {
	status  int
	kind    string
	message string
}

func (f *failure) Error() string { return f.message }

func fail(status int, kind, format string, args ...any) *failure {
	return &failure{status, kind, fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) *failure {
	return fail(http.StatusBadRequest, "bad_request", format, args...)
}

func unknownModel(name string) *failure {
	return fail(http.StatusNotFound, "unknown_model", "model: none named %s is served here: GET /models lists them", shown(name))
}

// internal is a failure that is ours: the cause goes to the log, not to the client.
func internal(what string) *failure {
	return fail(http.StatusInternalServerError, "internal", "%s: the endpoint's log says why", what)
}

// notStored is what could not be written to the disk. Where that is full, the client may say so to who can make room.
func notStored(what string, err error) *failure {
	if noRoom(err) {
		return fail(http.StatusInsufficientStorage, "disk_full", "%s: no space is left on the disk of the endpoint's model_dir: make room there", what)
	}
	return internal(what)
}

// noRoom says whether it was for want of room on the disk.
func noRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// body is what a client gets to read.
func (f *failure) body() []byte {
	return toJSON(map[string]string{"error": f.message})
}

// toJSON ends in a line feed.
func toJSON(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // only strings and maps of them, and what was JSON before, get here
	}
	return append(text, '\n')
}

// writeJSON answers with value as JSON.
func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that has gone away needs no answer.
	_, _ = w.Write(toJSON(value))
}

// shown quotes what a client sent, cut to a length that an error message can carry.
func shown[T string | []byte](text T) string {
	const longest = 64
	if len(text) > longest {
		return fmt.Sprintf("%q…", text[:longest])
	}
	return fmt.Sprintf("%q", text)
}
