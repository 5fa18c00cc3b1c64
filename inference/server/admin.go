package main

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// bears says whether the header Authorization carries the token. It takes as long for a wrong token as for a right one.
func bears(header, token string) bool {
	scheme, sent, _ := strings.Cut(header, " ")
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(strings.TrimSpace(sent)))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1 && strings.EqualFold(scheme, "Bearer") && token != ""
}

// mayPredict says whether predictions need no token, or the header carries one that is good for them.
func (s *server) mayPredict(header string) bool {
	c := s.credentials.Load()
	return c.predictToken == "" || bears(header, c.predictToken) || bears(header, c.adminToken)
}

// authorize lets through who sends the administrator's token.
func (s *server) authorize(w http.ResponseWriter, r *http.Request) *failure {
	token := s.credentials.Load().adminToken
	if token == "" {
		return fail(http.StatusForbidden, "forbidden",
			"this endpoint takes no uploads and deletes, as it was started without a token: set admin_token_file in section [endpoint] of smartcache.toml (flag -admin-token-file) and restart it")
	}
	if !bears(r.Header.Get("Authorization"), token) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return fail(http.StatusUnauthorized, "unauthorized", "Authorization: must be Bearer with the token of the endpoint's admin_token_file")
	}
	if !s.ready.Load() {
		return notReady()
	}
	return nil
}

// maxUploads is how many may be under way at once: each has its files on the disk, and one whose body comes slowly must not be in the way of others.
const maxUploads = 8

// untimed takes away a connection's time limits, which are those of predictions, until answer gives the answer its own.
func (s *server) untimed(w http.ResponseWriter) (control *http.ResponseController, answer func(), _ *failure) {
	control = http.NewResponseController(w)
	if err := errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})); err != nil {
		s.log.Error("time limits can't be set", "error", err)
		return nil, nil, internal("request")
	}
	return control, func() {
		// That of a connection that is gone can't be set, and need not be.
		_ = control.SetWriteDeadline(time.Now().Add(s.config.requestTimeout))
	}, nil
}

// wait is for one's turn, which get waits for as long as its context lasts.
func (s *server) wait(w http.ResponseWriter, r *http.Request, get func(context.Context) (func(), *failure)) (free func(), _ *failure) {
	ctx, cancel := context.WithTimeout(r.Context(), s.config.requestTimeout)
	defer cancel()
	free, failed := get(ctx)
	if failed != nil {
		w.Header().Set("Retry-After", "1")
	}
	return free, failed
}

// change begins a call that changes the models, and has no body any more: it waits for its turn, without the connection's time limits.
func (s *server) change(w http.ResponseWriter, r *http.Request) (done func(), _ *failure) {
	_, answer, failed := s.untimed(w)
	if failed != nil {
		return nil, failed
	}
	free, failed := s.wait(w, r, s.models.change)
	if failed != nil {
		return nil, failed
	}
	return func() {
		free()
		answer()
	}, nil
}

// upload answers POST /upload: unpacked beside the models as it comes; then, once nobody else changes them, loaded and compared with its golden
// rows, renamed into place and served. After any failure nothing of it is left.
func (s *server) upload(w http.ResponseWriter, r *http.Request) *failure {
	if err := s.authorize(w, r); err != nil {
		w.Header().Set("Connection", "close")
		return err
	}
	limit := s.config.maxUploadBytes
	if r.ContentLength > limit {
		w.Header().Set("Connection", "close")
		return tooLarge(limit)
	}
	control, answer, failed := s.untimed(w)
	if failed != nil {
		return failed
	}
	defer answer()
	free, failed := s.wait(w, r, func(ctx context.Context) (func(), *failure) {
		return take(ctx, s.uploads, "too many uploads are under way: try again")
	})
	if failed != nil {
		w.Header().Set("Connection", "close") // its body is not read
		return failed
	}
	defer free()

	folder, err := os.MkdirTemp(s.config.modelDir, uploadPrefix)
	if err != nil {
		s.log.Error("upload can't be stored", "error", err)
		return notStored("upload", err)
	}
	defer func() {
		if err := os.RemoveAll(folder); err != nil {
			s.log.Warn("an upload's files are left until the next start", "folder", folder, "error", err)
		}
	}()

	var stream io.Reader = &steadyReader{http.MaxBytesReader(w, r.Body, limit), control, s.config.requestTimeout}
	kind, parameters, bad := mime.ParseMediaType(r.Header.Get("Content-Type"))
	isForm := bad == nil && kind == "multipart/form-data"
	encoding := r.Header.Get("Content-Encoding")
	inBase64 := isForm && encoding == "base64" // as TFaaS's client says of the part `model`
	switch encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		if stream, err = gzip.NewReader(stream); err != nil {
			return s.archiveFailure(err)
		}
	default:
		if !inBase64 {
			return fail(http.StatusUnsupportedMediaType, "bad_request", "Content-Encoding: must be gzip, or base64 of a form, or absent, is %s", shown(encoding))
		}
	}
	var name string
	if isForm {
		name, err = unpackForm(stream, parameters["boundary"], folder, limit, inBase64)
	} else {
		name, err = unpack(stream, folder, limit)
	}
	if err != nil {
		return s.archiveFailure(err)
	}
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return badRequest("body: the connection is gone: %v", err)
	}
	// Only now: a body may take long.
	done, failed := s.wait(w, r, s.models.change)
	if failed != nil {
		return failed
	}
	defer done()

	start := time.Now()
	installed, failed := s.models.install(filepath.Join(folder, name), name)
	if failed != nil {
		if failed.status < 500 {
			s.log.Warn("upload refused", "model", name, "error", failed)
		}
		return failed
	}
	status := "already served"
	if installed {
		status = "loaded"
		s.log.Info("model uploaded", "model", name, "seconds", time.Since(start).Seconds())
	}
	writeJSON(w, http.StatusOK, map[string]string{"model": name, "status": status})
	return nil
}

// archiveFailure is the answer to an archive that could not be unpacked.
func (s *server) archiveFailure(err error) *failure {
	var path *os.PathError
	// A file inside of another one, or a name that no file can have, is the archive's fault, not the disk's.
	if errors.As(err, &path) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.ENAMETOOLONG) {
		s.log.Error("upload can't be stored", "error", err)
		return notStored("upload", err)
	}
	if f := bodyFailure(err, s.config.maxUploadBytes); f.status != http.StatusBadRequest {
		return f
	}
	return fail(http.StatusBadRequest, "bad_archive", "archive: %v: send a tar of NAME/…, compressed only with Content-Encoding: gzip, or a form with a name and files", err)
}

// remove answers DELETE /delete/NAME once the model is freed.
func (s *server) remove(w http.ResponseWriter, r *http.Request) *failure {
	if err := s.authorize(w, r); err != nil {
		return err
	}
	return s.removeNamed(w, r, r.PathValue("name"))
}

// removeForm answers DELETE /delete as TFaaS's client sends it: with the name as the field `model` of a form, or of the query.
func (s *server) removeForm(w http.ResponseWriter, r *http.Request) *failure {
	if err := s.authorize(w, r); err != nil {
		w.Header().Set("Connection", "close")
		return err
	}
	limit := s.config.maxBodyBytes
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	if err := r.ParseMultipartForm(limit); err != nil && !errors.Is(err, http.ErrNotMultipart) {
		return bodyFailure(err, limit)
	}
	name := r.FormValue("model")
	if name == "" {
		return badRequest("model: must be there, as a field of a form or of the query, is missing: or say DELETE /delete/NAME")
	}
	return s.removeNamed(w, r, name)
}

// removeNamed is for who has been let through.
func (s *server) removeNamed(w http.ResponseWriter, r *http.Request, name string) *failure {
	if !modelName.MatchString(name) {
		return badRequest("model: must be a name of A-Z a-z 0-9 _, is %s", shown(name))
	}
	done, err := s.change(w, r)
	if err != nil {
		return err
	}
	defer done()
	if err := s.models.remove(name); err != nil {
		return err
	}
	s.log.Info("model deleted", "model", name)
	writeJSON(w, http.StatusOK, map[string]string{"model": name, "status": "deleted"})
	return nil
}

// steadyReader reads a body that may be long, but must make progress within the limit each time.
type steadyReader struct {
	io.Reader
	control *http.ResponseController
	limit   time.Duration
}

func (s *steadyReader) Read(p []byte) (int, error) {
	if err := s.control.SetReadDeadline(time.Now().Add(s.limit)); err != nil {
		return 0, err
	}
	return s.Reader.Read(p)
}
