package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
)

// Folders of ours inside the model folder. Their names are no model names, so nothing in them is ever served; what a crash leaves of them
// is removed at the next start.
const (
	uploadPrefix  = ".upload-"
	deletedPrefix = ".deleted-"
	lockFile      = ".lock"
)

// registry holds the models that are served. A model's name stands for one content for as long as it is there: there is no replacing.
//
// Safe for use from several goroutines. acquire never waits for install, remove or the loading of a model. install and remove must be
// called with the change slot held (see change): one change of the folder at a time.
type registry struct {
	folder string
	log    *slog.Logger
	slot   chan struct{}
	lock   *os.File
	open   func(folder, name string) (*model, error)

	mu      sync.RWMutex
	models  map[string]*model
	leftOut map[string]error // folders that are there, and why they could not be loaded
	aliases map[string]string
}

// newRegistry prepares to serve the models of a folder. A writable one is locked: two servers that change one folder would remove each
// other's work. One that never changes it need not be able to write there.
func newRegistry(folder string, writable bool, log *slog.Logger) (*registry, error) {
	r := &registry{folder: folder, log: log, slot: make(chan struct{}, 1), models: map[string]*model{}, leftOut: map[string]error{}, aliases: map[string]string{}}
	if !writable {
		return r, nil
	}
	file, err := os.OpenFile(filepath.Join(folder, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("model-dir: must be writable, as uploads are allowed: %w: change its owner, or pass an empty -admin-token-file", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("model-dir: must be used by one server, %s is locked by another (%w): stop that one, or give this one its own folder", folder, err)
	}
	r.lock = file
	return r, nil
}

// load opens every model in the folder and removes what a crash left of an upload or a removal. One that can't be loaded is logged and
// left out: the others are served. Links are not followed.
func (r *registry) load() error {
	entries, err := os.ReadDir(r.folder)
	if err != nil {
		return fmt.Errorf("model-dir: can't be read: %w", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case r.lock != nil && (strings.HasPrefix(name, uploadPrefix) || strings.HasPrefix(name, deletedPrefix)):
			if err := os.RemoveAll(filepath.Join(r.folder, name)); err != nil {
				r.log.Warn("what a crash left can't be removed", "folder", name, "error", err)
			}
		case !entry.IsDir() || strings.HasPrefix(name, "."):
		case !modelName.MatchString(name):
			r.log.Warn("folder is no model: its name must be of A-Z a-z 0-9 _", "folder", name)
		default:
			m, err := r.open(filepath.Join(r.folder, name), name)
			if err != nil {
				r.mu.Lock()
				r.leftOut[name] = err
				r.mu.Unlock()
				r.log.Error("model left out", "model", name, "error", err)
				continue
			}
			r.mu.Lock()
			r.models[name] = m
			r.mu.Unlock()
			r.log.Info("model loaded", "model", name, "sha256", m.digest)
			r.sayMissing(m)
		}
	}
	return r.readAliases()
}

// acquire returns the model NAME, or the one that the alias NAME names, or nil; without a name the default one. It stays loaded until it is released.
func (r *registry) acquire(name []byte) *model {
	r.mu.RLock()
	defer r.mu.RUnlock()
	m := r.models[string(name)]
	if m == nil {
		m = r.models[r.aliases[string(name)]]
	}
	if m != nil {
		m.inflight.Add(1)
	}
	return m
}

// absent is the answer to who asks for a model that acquire has not.
func (r *registry) absent(name string) *failure {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if model, named := r.aliases[name]; named {
		name = model
	}
	if err := r.leftOut[name]; err != nil {
		return fail(http.StatusInternalServerError, "model_failed", "model %s is in the endpoint's folder, but can't be served: %v: delete it there, and upload it again", name, err)
	}
	return unknownModel(name)
}

// list returns what is served, by name.
func (r *registry) list() []*bundle {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := make([]*bundle, 0, len(r.models))
	for _, m := range r.models {
		all = append(all, m.bundle)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].name < all[j].name })
	return all
}

func (r *registry) count() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.models)
}

// countLeftOut is how many folders are there, and hold nothing that can be served.
func (r *registry) countLeftOut() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.leftOut)
}

// change waits for the right to change the folder; done gives it back.
func (r *registry) change(ctx context.Context) (done func(), err *failure) {
	return take(ctx, r.slot, "another upload or delete is under way: try again")
}

// take waits for one of the slots; free gives it back.
func take(ctx context.Context, slots chan struct{}, busy string) (free func(), err *failure) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, fail(http.StatusServiceUnavailable, "busy", "%s", busy)
	}
}

// install makes the model in the folder `fresh`, which lies inside the registry's, one of those that are served. Already there with the
// same content: false, and nothing changes. Any error leaves what is served, and the folder NAME, as they were.
func (r *registry) install(fresh, name string) (installed bool, _ *failure) {
	target := filepath.Join(r.folder, name)
	if model, taken := r.allAliases()[name]; taken {
		return false, fail(http.StatusConflict, "conflict", "%s is an alias of %s: upload under another name, or remove the alias first", name, model)
	}
	r.mu.RLock()
	current := r.models[name]
	r.mu.RUnlock()
	if current != nil {
		sum, err := digest(fresh)
		if err != nil {
			r.log.Error("upload can't be read", "model", name, "error", err)
			return false, internal("upload")
		}
		if sum == current.digest {
			return false, nil
		}
		return false, fail(http.StatusConflict, "conflict",
			"model %s is served with other content: a name stands for one content: upload under a new name, or DELETE /delete/%s first", name, name)
	}
	if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
		return false, fail(http.StatusConflict, "conflict", "a folder %s is there but could not be loaded: DELETE /delete/%s first", name, name)
	}

	m, err := r.open(fresh, name)
	if err != nil {
		return false, fail(http.StatusUnprocessableEntity, "bad_model", "model %s can't be served: %v", name, err)
	}
	err = syncTree(fresh)
	if err == nil {
		err = os.Rename(fresh, target)
	}
	if err != nil {
		m.tf.Close()
		r.log.Error("upload can't be stored", "model", name, "error", err)
		return false, notStored("upload", err)
	}
	if err := syncPath(r.folder); err != nil {
		r.log.Warn("the model's folder may not survive a power failure", "model", name, "error", err)
	}
	r.mu.Lock()
	r.models[name] = m
	r.mu.Unlock()
	r.sayMissing(m)
	return true, nil
}

// sayMissing tells, once for each model that is loaded, what a plain one lacks.
func (r *registry) sayMissing(m *model) {
	if m.plain {
		r.log.Warn("plain TFaaS model: served, and less of it is checked", "model", m.name, "missing", m.missing)
	}
}

// remove stops serving the model NAME, waits for the predictions that it is in, frees it and removes its folder, which takes no room: the disk
// may be full. After an error it is served as before.
func (r *registry) remove(name string) *failure {
	path := filepath.Join(r.folder, name)
	switch there, err := os.Lstat(path); {
	case err == nil && !there.IsDir() && r.serves(name):
		return fail(http.StatusConflict, "conflict", "model %s is no folder any more, and links are not followed: remove what is there by hand, then delete again", name)
	case (errors.Is(err, os.ErrNotExist) || err == nil && !there.IsDir()) && !r.serves(name):
		return unknownModel(name) // as a link is none
	}
	if alias, named := r.aliasOf(name); named && r.serves(name) {
		return fail(http.StatusConflict, "conflict", "model %s is named by the alias %q (\"\" is the default): move it by POST /params first", name, alias)
	}
	grave := filepath.Join(r.folder, deletedPrefix+name)
	err := os.RemoveAll(grave) // what could not be removed the last time
	if err == nil {
		err = os.Rename(path, grave)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = nil // someone has removed the folder already; what is loaded still has to go
	case noRoom(err):
		// There is none even for the new name in the folder. What a crash leaves of it then must not be a model.
		grave = path
		if err = removeInside(r.folder, filepath.Join(name, "saved_model.pb")); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		r.log.Error("model can't be removed", "model", name, "error", err)
		return internal("delete")
	}
	r.mu.Lock()
	m := r.models[name]
	delete(r.models, name)
	delete(r.leftOut, name)
	r.mu.Unlock()
	if m != nil {
		m.inflight.Wait()
		m.tf.Close()
	}
	if err := os.RemoveAll(grave); err != nil {
		r.log.Warn("a deleted model's files are left until the next start, or the next delete", "model", name, "error", err)
	}
	return nil
}

func (r *registry) serves(name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.models[name] != nil
}

// close frees all models, waiting for the predictions that they are in, and unlocks the folder.
func (r *registry) close() {
	r.mu.Lock()
	models := r.models
	r.models = map[string]*model{}
	r.mu.Unlock()
	for _, m := range models {
		m.inflight.Wait()
		m.tf.Close()
	}
	if r.lock != nil {
		r.lock.Close()
	}
}

// removeInside removes a file in a folder, and never one outside of it that a link leads to.
func removeInside(folder, file string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.Remove(file)
}

// syncTree writes a folder and all in it to the disk.
func syncTree(folder string) error {
	return filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncPath(path)
	})
}

func syncPath(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}
