package main

import (
	"errors"
	"fmt"
	"go/ast"
	"slices"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/nodelabels"
)

// nodeLabel returns the name of the constant by which an expression such as node.Labels[labelZone] reads a label.
func nodeLabel(n ast.Node) []string {
	index, isIndex := n.(*ast.IndexExpr)
	if !isIndex {
		return nil
	}
	labels, isField := index.X.(*ast.SelectorExpr)
	key, isName := index.Index.(*ast.Ident)
	if !isField || !isName || labels.Sel.Name != "Labels" {
		return nil
	}
	if of, ok := labels.X.(*ast.Ident); !ok || !slices.Contains([]string{"n", "node"}, of.Name) {
		return nil
	}
	return []string{key.Name}
}

// undeclaredLabels reports labels of Nodes that a provider's code reads although a tag may give them.
func undeclaredLabels(p registry.Provider, found source) error {
	var problems []error
	slices.Sort(found.labels)
	for _, name := range slices.Compact(found.labels) {
		label, known := found.texts[name]
		if !known {
			continue
		}
		if _, err := nodelabels.ParseRules([]string{"tag=" + label}, "", p.NodeLabels); err == nil {
			problems = append(problems, fmt.Errorf("provider %s: its code reads the label %s of Nodes, which a tag may give: add it to NodeLabels", p.Name, label))
		}
	}
	return errors.Join(problems...)
}
