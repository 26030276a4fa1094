// Package kubeadm holds the test that kubeadm, kubelet and the controller manager take what the quick start says. It is a module of
// its own, because the product needs nothing of Kubernetes' programs.
package kubeadm
