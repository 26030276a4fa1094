// Command judge reads an oVirt engine with the Go client that the project oVirt publishes, and writes what it has seen as JSON. A test
// points it at the simulated engine: that client refuses documents which lack what a real engine always shows.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	ovirtclient "github.com/ovirt/go-ovirt-client/v3"
	ovirtclientlog "github.com/ovirt/go-ovirt-client-log/v3"
)

type report struct {
	Listed, Searched []string
	ByName           string
	Addresses        map[string][]string
	Missing          bool
}

func main() {
	r, err := look(os.Args[1], os.Args[2], os.Args[3], os.Args[4])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func look(url, user, password, name string) (r report, err error) {
	c, err := ovirtclient.New(url, user, password, ovirtclient.TLS().Insecure(), ovirtclientlog.NewNOOPLogger(), nil)
	if err != nil {
		return r, fmt.Errorf("logging in: %w", err)
	}
	all, err := c.ListVMs()
	if err != nil {
		return r, fmt.Errorf("listing: %w", err)
	}
	for _, v := range all {
		r.Listed = append(r.Listed, fmt.Sprintf("%s %s %s", v.ID(), v.Name(), v.Status()))
	}
	found, err := c.SearchVMs(ovirtclient.VMSearchParams().WithName(name))
	if err != nil {
		return r, fmt.Errorf("searching: %w", err)
	}
	for _, v := range found {
		r.Searched = append(r.Searched, v.Name())
	}
	one, err := c.GetVMByName(name)
	if err != nil {
		return r, fmt.Errorf("finding by name: %w", err)
	}
	r.ByName = string(one.ID())
	addresses, err := c.GetVMIPAddresses(one.ID(), ovirtclient.NewVMIPSearchParams())
	if err != nil {
		return r, fmt.Errorf("reading addresses: %w", err)
	}
	r.Addresses = map[string][]string{}
	for nic, ips := range addresses {
		for _, ip := range ips {
			r.Addresses[nic] = append(r.Addresses[nic], ip.String())
		}
	}
	_, err = c.GetVM("00000000-0000-0000-0000-00000000dead")
	r.Missing = ovirtclient.HasErrorCode(err, ovirtclient.ENotFound)
	if err != nil && !r.Missing {
		return r, errors.Join(errors.New("reading what does not exist"), err)
	}
	return r, nil
}
