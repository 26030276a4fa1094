// Package contract holds what providers and the guard around them agree on: what a cloud may implement besides k8s.io/cloud-provider, the
// questions, and the answers. It decides nothing.
package contract
