package main

import (
	"archive/tar"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// maxEntries bounds what an archive costs beside its bytes: a SavedModel has about ten files.
const maxEntries = 1000

var errTooLarge = errors.New("the archive unpacks to more than is allowed")

// unpack reads a tar of one folder, NAME/…, into the folder `into` and returns NAME. It writes only inside `into`, only files and folders,
// each once, and reads at most limit bytes. An error says what is wrong with the archive, or is that of stream; what was unpacked by then
// is left in `into`.
func unpack(stream io.Reader, into string, limit int64) (name string, err error) {
	root, err := os.OpenRoot(into)
	if err != nil {
		return "", err
	}
	defer root.Close()
	limited := &limitedReader{stream, limit}
	archive := tar.NewReader(limited)
	left := limit // of what the files are together: one that is sparse is more than its bytes in the stream
	for entries := 0; ; entries++ {
		header, err := archive.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			return "", err
		}
		if header.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if entries >= maxEntries {
			return "", fmt.Errorf("must have at most %d entries", maxEntries)
		}
		place := path.Clean(header.Name)
		if place == "." && header.Typeflag == tar.TypeDir {
			continue
		}
		if !staysInside(header.Name) {
			return "", fmt.Errorf("entry %s: must lie inside the archive's own folder", shown(header.Name))
		}
		first, _, inside := strings.Cut(place, "/")
		switch {
		case !modelName.MatchString(first):
			return "", fmt.Errorf("entry %s: must lie in one folder that is named as the model, of A-Z a-z 0-9 _", shown(header.Name))
		case name != "" && name != first:
			return "", fmt.Errorf("entry %s: must lie in the same folder as the others, %s", shown(header.Name), name)
		}
		name = first

		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(place, 0o755)
		case tar.TypeReg:
			if !inside {
				return "", fmt.Errorf("entry %s: must lie in a folder that is named as the model", shown(header.Name))
			}
			if left -= header.Size; left < 0 {
				return "", errTooLarge
			}
			err = unpackFile(root, place, archive)
		default:
			return "", fmt.Errorf("entry %s: must be a file or a folder, is of type %q", shown(header.Name), header.Typeflag)
		}
		if errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("entry %s: must be there once, is there twice", shown(header.Name))
		} else if err != nil {
			return "", err
		}
	}
	// To the end: the checksum of a gzip stream stands there.
	if _, err := io.Copy(io.Discard, limited); err != nil {
		return "", err
	}
	if name == "" {
		return "", errors.New("must hold a folder that is named as the model, is empty")
	}
	return name, nil
}

// formFolder is where a form's files are as long as the model's name is not known; it is no model's name.
const formFolder = ".form"

// unpackForm reads a form into the folder `into`, as stock TFaaS takes it: the field `name` and file parts, in any order; other fields do not count.
// A file's place in the model's folder is its filename, with folders (variables/variables.index); part `params` is params.json, part `model` is
// saved_model.pb, in base64 if so said, and part `labels` is in the folder itself, wherever the client had it. Otherwise as unpack.
func unpackForm(stream io.Reader, boundary, into string, limit int64, inBase64 bool) (name string, err error) {
	root, err := os.OpenRoot(into)
	if err != nil {
		return "", err
	}
	defer root.Close()
	limited := &limitedReader{stream, limit}
	form := multipart.NewReader(limited, boundary)
	for entries := 0; ; entries++ {
		part, err := form.NextPart()
		if err == io.EOF {
			break
		} else if err != nil {
			return "", err
		}
		if entries >= maxEntries {
			return "", fmt.Errorf("must have at most %d parts", maxEntries)
		}
		// Part.FileName drops the folders.
		_, parameters, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		file, isFile := parameters["filename"]
		var content io.Reader = part
		switch field := part.FormName(); {
		case err != nil:
			return "", err
		case !isFile && field == "name":
			text, err := io.ReadAll(io.LimitReader(part, 1024))
			if err != nil {
				return "", err
			}
			if name != "" || !modelName.Match(text) {
				return "", fmt.Errorf("field name: must be there once, the model's, of A-Z a-z 0-9 _, is %s", shown(text))
			}
			name = string(text)
			continue
		case !isFile:
			continue // TFaaS's client sends all that its description of the model has
		case field == "params":
			file = "params.json"
		case field == "labels" && file == "":
			continue // a page's form has the part though nobody has chosen a file
		case field == "labels":
			file = path.Base(file)
		case field == "model":
			file = "saved_model.pb"
			if inBase64 {
				content = base64.NewDecoder(base64.StdEncoding, part)
			}
		}
		if !staysInside(file) {
			return "", fmt.Errorf("file %s: must lie inside the model's folder", shown(file))
		}
		if path.Clean(file) == "." {
			return "", fmt.Errorf("field %s: its filename must be the file's place in the model's folder, is %s", shown(part.FormName()), shown(file))
		}
		err = unpackFile(root, path.Join(formFolder, file), content)
		if errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("file %s: must be there once, is there twice", shown(file))
		} else if err != nil {
			return "", err
		}
	}
	// To the end, as in unpack.
	if _, err := io.Copy(io.Discard, limited); err != nil {
		return "", err
	}
	if _, err := root.Stat(formFolder); name == "" || err != nil {
		return "", errors.New("must have the field name and files")
	}
	return name, root.Rename(formFolder, name)
}

// staysInside says whether a path names nothing outside the folder that it starts in, on its way neither.
func staysInside(name string) bool {
	return filepath.IsLocal(path.Clean(name)) && !strings.ContainsAny(name, "\\\x00") && !strings.Contains("/"+name+"/", "/../")
}

func unpackFile(root *os.Root, place string, content io.Reader) error {
	if err := root.MkdirAll(path.Dir(place), 0o755); err != nil {
		return err
	}
	file, err := root.OpenFile(place, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// limitedReader fails with errTooLarge where there is more to read than left.
type limitedReader struct {
	io.Reader
	left int64
}

func (l *limitedReader) Read(p []byte) (int, error) {
	// One byte more than is allowed tells too much from just enough.
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.Reader.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}
