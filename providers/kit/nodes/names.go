package nodes

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

const (
	indexName = "name of an instance"
	// IndexLowerName has the names of instances in lower case, in which kubelets register.
	IndexLowerName = "name in lower case"
)

// NameIndexes are those of an inventory for NameKeys.
func NameIndexes[T any](name func(T) string) map[string]func(T) []string {
	return map[string]func(T) []string{
		indexName:      func(instance T) []string { return []string{name(instance)} },
		IndexLowerName: func(instance T) []string { return []string{strings.ToLower(name(instance))} },
	}
}

// NameKeys find the instance that is named like a Node; the very name comes before one in other case.
func NameKeys[T any](node *v1.Node) []Key[T] {
	return []Key[T]{{Index: indexName, Value: node.Name}, {Index: IndexLowerName, Value: strings.ToLower(node.Name)}}
}
