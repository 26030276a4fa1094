package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/test/vrrp"
)

// fakeRoot is a folder that has a keepalived which nobody will run.
func fakeRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr", "sbin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "usr", "sbin", "keepalived"), nil, 0o755))
	return root
}

// TestSkipsPlainly: where the services cannot be had, the reason says what to do about it, and nothing was started.
func TestSkipsPlainly(t *testing.T) {
	for name, c := range map[string]struct {
		services string
		env      map[string]string
		words    string
	}{
		"no folder":    {"openstack", map[string]string{openstackVariable: ""}, "name the folder of their scripts by ANYCCM_OPENSTACK"},
		"wrong folder": {"openstack", map[string]string{openstackVariable: "nowhere"}, "ANYCCM_OPENSTACK=nowhere has no env.sh that can be read"},
		"no Python":    {"aws", map[string]string{motoVariable: "", "PATH": ""}, "moto needs Python: there is no python3 on the PATH"},
		"no moto":      {"aws", map[string]string{motoVariable: "nowhere"}, "ANYCCM_MOTO: "},
		"no package":   {"keepalived", map[string]string{vrrp.RootVariable: "", "PATH": ""}, "the package keepalived is not to be had here"},
		"no such root": {"keepalived", map[string]string{vrrp.RootVariable: "nowhere"}, "ANYCCM_KEEPALIVED_ROOT: "},
		"no namespaces": {
			"keepalived", map[string]string{vrrp.RootVariable: fakeRoot(t), "PATH": ""}, "namespaces cannot be made here, which takes root",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for key, value := range c.env {
				t.Setenv(key, value)
			}
			into := filepath.Join(t.TempDir(), "record.json")
			err := try(t.Context(), []string{"-services=" + c.services, "-record=" + into}, io.Discard)
			var not notHere
			require.ErrorAs(t, err, &not)
			assert.Contains(t, err.Error(), c.words)
			assert.NoFileExists(t, into, "what was not run is not recorded")
		})
	}
	require.ErrorContains(t, try(t.Context(), []string{"-services=vax"}, io.Discard), `-services "vax": use aws, keepalived, openstack, vsphere`)
}

// TestWants: parts are chosen by name.
func TestWants(t *testing.T) {
	t.Parallel()
	assert.True(t, (&run{}).wants("suite"))
	assert.True(t, (&run{only: []string{"steps", " suite"}}).wants("suite"))
	assert.False(t, (&run{only: []string{"steps"}}).wants("suite"))
}

// TestElements: texts are found by the end of their path, wherever that is.
func TestElements(t *testing.T) {
	t.Parallel()
	var e element
	require.NoError(t, xml.NewDecoder(bytes.NewBufferString(
		`<R><set><item><id>a</id><in><item><id>b</id></item></in></item><item><id> c </id></item></set><id>d</id></R>`)).Decode(&e))
	assert.Equal(t, []string{"a", "b", "c"}, e.all("item/id"))
	assert.Equal(t, []string{"d"}, e.at("id"))
	assert.Empty(t, e.all("item/none"))
}
