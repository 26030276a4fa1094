// Package chart tests what the Helm chart renders, without any cluster. The end-to-end tests install it.
package chart
