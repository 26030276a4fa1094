package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIdentify(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"Apache":              {"                                 Apache License\n                           Version 2.0, January 2004", []string{"Apache-2.0"}},
		"Apache, in a notice": {"// Licensed under the Apache License, Version 2.0 (the \"License\");", []string{"Apache-2.0"}},
		"MIT":                 {"Permission is hereby granted, free of charge, to any person obtaining\na copy of this software", []string{"MIT"}},
		"ISC":                 {"Permission to use, copy, modify, and/or distribute this software for any\npurpose with or without fee is hereby granted", []string{"ISC"}},
		"BSD, two clauses":    {"2. Redistributions in binary form must reproduce the above\n   copyright notice", []string{"BSD-2-Clause"}},
		"BSD, three clauses":  {"Redistributions in binary form must reproduce the above copyright notice. Neither the name … may be used to endorse or promote products\nderived from this software without specific prior written permission.", []string{"BSD-3-Clause"}},
		"MPL":                 {"Mozilla Public License, version 2.0\n\n1. Definitions", []string{"MPL-2.0"}},
		"two in one file":     {"Permission is hereby granted, free of charge, to any person obtaining a copy … Apache License Version 2.0", []string{"Apache-2.0", "MIT"}},
		"GPL":                 {"GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007", nil},
		"nothing":             {"All rights reserved.", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, identify(c.text))
		})
	}
}

func TestModuleWithoutGoodLicenceIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, text, problem string }{
		"none":      {"README", "Read me.", "there is no licence file"},
		"forbidden": {"LICENSE", "GNU AFFERO GENERAL PUBLIC LICENSE", "LICENSE is not among the licences"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(folder, c.file), []byte(c.text), 0o600))
			assert.ErrorContains(t, new(module).read(folder), c.problem)
		})
	}
	assert.ErrorContains(t, new(module).read(""), "go mod download")
}

func TestBillAndLicencesOfABinary(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	binary := filepath.Join(folder, "generate")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags=grpcnotrace", "-o", binary, "../generate")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	info, err := buildinfo.ReadFile(binary)
	require.NoError(t, err)
	sbom, licences := filepath.Join(folder, "sbom.json"), filepath.Join(folder, "licences")
	require.NoError(t, run(t.Context(), []string{"-sbom", sbom, "-licenses", licences, binary}))

	text, err := os.ReadFile(sbom)
	require.NoError(t, err)
	var have bill
	require.NoError(t, json.Unmarshal(text, &have))
	assert.Equal(t, "CycloneDX", have.Format)
	byName := map[string]component{}
	for _, c := range have.Components {
		byName[c.Name] = c
	}
	assert.Len(t, byName, len(info.Deps)+1, "every module, and the standard library")
	godo := byName["github.com/digitalocean/godo"]
	require.NotEmpty(t, godo.Licences)
	assert.Equal(t, "MIT", godo.Licences[0].Licence.ID)
	assert.Equal(t, "pkg:golang/github.com/digitalocean/godo@"+godo.Version, godo.PURL)

	texts, err := os.ReadFile(licences)
	require.NoError(t, err)
	for _, d := range info.Deps {
		assert.Contains(t, string(texts), d.Path+" "+d.Version)
	}
}
