package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
)

// aliasFile holds the aliases over a restart: {"ALIAS": "MODEL"}; the alias "" is the default model.
const aliasFile = ".aliases.json"

// readAliases reads what POST /params has set.
func (r *registry) readAliases() error {
	text, err := os.ReadFile(filepath.Join(r.folder, aliasFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%s: can't be read: %w", aliasFile, err)
	}
	aliases := map[string]string{}
	if err := json.Unmarshal(text, &aliases); err != nil || aliases == nil {
		// A full disk may have left half of it. Whoever serves by an alias says so again; those that name their model are served now.
		r.log.Error("aliases can't be read: there are none now", "file", aliasFile, "error", err)
		if r.lock != nil { // else it is another server's
			place := filepath.Join(r.folder, aliasFile)
			err := os.Rename(place, place+".bad")
			r.log.Error("aliases set aside", "as", aliasFile+".bad", "error", err)
		}
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for alias, name := range aliases {
		if r.models[name] == nil {
			r.log.Warn("alias names a model that is not served", "alias", alias, "model", name)
		}
	}
	r.aliases = aliases
	return nil
}

// setAlias lets alias name a model that is served, from the next request on; with an empty name it is removed. The change slot must be held.
func (r *registry) setAlias(alias, name string) *failure {
	if name != "" && !r.serves(name) {
		return unknownModel(name)
	}
	if r.serves(alias) {
		return fail(http.StatusConflict, "conflict", "alias: must not be the name of a model, %s is", alias)
	}
	aliases := maps.Clone(r.allAliases())
	if aliases[alias] = name; name == "" {
		delete(aliases, alias)
	}
	fresh := filepath.Join(r.folder, aliasFile+".new")
	err := os.WriteFile(fresh, toJSON(aliases), 0o644)
	if err == nil {
		err = syncPath(fresh) // a disk may say only now that it is full
	}
	if err == nil {
		err = os.Rename(fresh, filepath.Join(r.folder, aliasFile))
	}
	if err == nil {
		err = syncPath(r.folder)
	}
	if err != nil {
		r.log.Error("alias can't be stored", "alias", alias, "error", err)
		return notStored("alias", err)
	}
	r.mu.Lock()
	r.aliases = aliases
	r.mu.Unlock()
	return nil
}

func (r *registry) allAliases() map[string]string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.aliases // never changed, only replaced
}

// aliasOf returns an alias that names the model.
func (r *registry) aliasOf(name string) (alias string, found bool) {
	for alias, model := range r.allAliases() {
		if model == name {
			return alias, true
		}
	}
	return "", false
}

// defaultParams answers /params: GET tells the params.json of the default model, as stock TFaaS does; POST is setParams.
func (s *server) defaultParams(w http.ResponseWriter, r *http.Request) *failure {
	switch r.Method {
	case http.MethodPost:
		return s.setParams(w, r)
	case http.MethodGet, http.MethodHead:
	default:
		return wrongMethod(w, r, "GET, POST")
	}
	m := s.models.acquire(nil)
	if m == nil {
		return fail(http.StatusNotFound, "unknown_model", "model: no default model is set: POST /params sets one, GET /models lists the names")
	}
	defer m.release()
	writeJSON(w, http.StatusOK, m.params)
	return nil
}

// setParams answers POST /params: the model NAME becomes the default one, or what an alias names.
func (s *server) setParams(w http.ResponseWriter, r *http.Request) *failure {
	if err := s.authorize(w, r); err != nil {
		w.Header().Set("Connection", "close")
		return err
	}
	text, failed := readBody(w, r, nil, s.config.maxBodyBytes)
	if failed != nil {
		return failed
	}
	// As stock TFaaS has it, a whole params.json may be sent: of its fields only the name counts here.
	var params struct {
		Name  *string `json:"name"`
		Alias string  `json:"alias"`
	}
	if err := json.Unmarshal(text, &params); err != nil || params.Name == nil {
		return badRequest(`body: must be JSON {"name": "MODEL"}, with "alias": "ALIAS" where it is not the default model; an empty name removes`)
	}
	if params.Alias != "" && !modelName.MatchString(params.Alias) {
		return badRequest("alias: must be a name of A-Z a-z 0-9 _, is %s", shown(params.Alias))
	}
	done, failed := s.change(w, r)
	if failed != nil {
		return failed
	}
	defer done()
	if failed := s.models.setAlias(params.Alias, *params.Name); failed != nil {
		return failed
	}
	s.log.Info("alias set", "alias", params.Alias, "model", *params.Name)
	writeJSON(w, http.StatusOK, map[string]string{"alias": params.Alias, "model": *params.Name})
	return nil
}
