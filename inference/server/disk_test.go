package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// smallDisk is a folder on a file system of its own, one that keeps folders in blocks; the test is skipped where this machine lets nobody mount.
func smallDisk(t *testing.T) string {
	t.Helper()
	image, folder := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 8<<20); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"mkfs.ext4", "-q", "-b", "1024", "-m", "0", "-O", "^has_journal,^dir_index", image}, {"mount", "-o", "loop", image, folder}} {
		if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no small disk here: %v: %v: %s", command, err, output)
		}
	}
	t.Cleanup(func() {
		if output, err := exec.Command("umount", "--lazy", folder).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, output)
		}
	})
	return folder
}

// fill writes a file until there is no byte left.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for size := 1 << 16; size >= 1; size >>= 4 {
		for err = nil; err == nil; {
			_, err = file.Write(make([]byte, size))
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// crowd makes empty files in a folder until that has no room for another name, of the length that it needs to keep a deleted model under.
func crowd(t *testing.T, folder string) {
	t.Helper()
	length := len(deletedPrefix + "reuse_v1")
	for i := range 10000 {
		file, err := os.Create(filepath.Join(folder, fmt.Sprintf("%0*d", length, i)))
		if errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	t.Fatal("the folder is never full")
}

// TestDeleteOnAFullDisk deletes where not even a folder can be made, and where a folder has no room for a name: that is how room is made.
func TestDeleteOnAFullDisk(t *testing.T) {
	for what, crowded := range map[string]bool{"no block": false, "no room for a name": true} {
		t.Run(what, func(t *testing.T) {
			folder := smallDisk(t)
			for _, name := range []string{"reuse_v1", "reuse_v2"} {
				if err := os.CopyFS(filepath.Join(folder, name), os.DirFS(filepath.Join(bundlesFolder(t), name))); err != nil {
					t.Fatal(err)
				}
			}
			elsewhere := filepath.Join(modelDir(t, "reuse_v2"), "reuse_v2")
			if err := os.Symlink(elsewhere, filepath.Join(folder, "linked")); err != nil {
				t.Fatal(err)
			}
			e := start(t, folder, nil)
			if status, body := e.admin("POST", "/params", strings.NewReader(`{"name":"reuse_v2"}`)); status != 200 {
				t.Fatalf("/params: %d %s", status, body)
			}
			fill(t, filepath.Join(folder, "filler"))
			if crowded {
				crowd(t, folder)
			}
			upload := archive(t, packed(t, "reuse_v1", "reuse_v3", nil)...).Bytes()
			status, body := e.admin("POST", "/upload", bytes.NewReader(upload))
			mustFail(t, status, body, 507, "no space is left")
			want := expected(t, "reuse_v1")
			e.mustPredict("reuse_v1", want.Inputs[0], want.Outputs[0])

			// Neither a link is deleted, nor what it leads to.
			status, body = e.admin("DELETE", "/delete/linked", nil)
			mustFail(t, status, body, 404, "linked")
			for _, left := range []string{filepath.Join(folder, "linked"), filepath.Join(elsewhere, "saved_model.pb")} {
				if _, err := os.Lstat(left); err != nil {
					t.Error(err)
				}
			}
			if status, body := e.admin("DELETE", "/delete/reuse_v1", nil); status != 200 {
				t.Fatalf("delete: %d %s", status, body)
			}
			status, body = e.predict("reuse_v1", want.Inputs[0])
			mustFail(t, status, body, 404, "reuse_v1")
			for _, left := range []string{"reuse_v1", deletedPrefix + "reuse_v1"} {
				if _, err := os.Lstat(filepath.Join(folder, left)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is left: %v", left, err)
				}
			}
			if crowded {
				return
			}
			// What was freed is enough for another.
			if status, body := e.admin("POST", "/upload", bytes.NewReader(upload)); status != 200 {
				t.Errorf("upload: %d %s", status, body)
			}
		})
	}
}
