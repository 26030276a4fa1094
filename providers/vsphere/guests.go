package vsphere

import (
	"fmt"
	"strings"
)

// strippedGuests are guest IDs without their suffix Guest, which instance types use without 64. The table is that of vSphere's own
// controller: a guest that it lacks is "unknown" on nodes with a label, and so on all others.
const strippedGuests = `asianux3 asianux3_64 asianux4 asianux4_64 asianux5_64 asianux7_64 centos centos6 centos6_64 centos7 centos7_64 coreos64
	darwin darwin64 debian4 debian4_64 debian5 debian5_64 debian6 debian6_64 debian7 debian7_64 debian8 debian8_64 debian9 debian9_64
	debian10 debian10_64 dos eComStation eComStation2 fedora fedora64 freebsd freebsd64 mandrake mandriva mandriva64 netware4 netware5
	netware6 nld9 oes openServer5 openServer6 opensuse opensuse64 oracleLinux oracleLinux64 oracleLinux6 oracleLinux6_64 oracleLinux7
	oracleLinux7_64 os2 other rhel2 rhel3 rhel3_64 rhel4 rhel4_64 rhel5 rhel5_64 rhel6 rhel6_64 rhel7 rhel7_64 rhel8_64 rhel9_64
	rhel10_64 sjds sles sles10 sles10_64 sles11 sles11_64 sles12 sles12_64 solaris6 solaris7 solaris8 solaris9 solaris10 solaris10_64
	solaris11_64 suse suse64 ubuntu ubuntu64 vmkernel vmkernel5 vmkernel6 vmkernel65 win31 win95 win98`

// guestTable maps guest IDs to the names of guest systems.
func guestTable() map[string]string {
	table := map[string]string{
		"centos64Guest": "centos64", "sles64Guest": "sles64", "genericLinuxGuest": "linux", "otherGuest64": "other", "redhatGuest": "rhel",
		"vmwarePhoton64Guest": "photon", "unixWare7Guest": "unixware7", "turboLinuxGuest": "turbolinux", "turboLinux64Guest": "turbolinux",
		"windows7Guest": "win7", "windows7_64Guest": "win7", "windows7Server64Guest": "win7server", "windows8Guest": "win8",
		"windows8_64Guest": "win8", "windows8Server64Guest": "win8server", "windows9Guest": "win10", "windows9_64Guest": "win10",
		"windows9Server64Guest": "win10server", "windowsHyperVGuest": "windowshyperv",
		"winLonghorn64Guest": "winlonghorn", "winNetDatacenter64Guest": "winnetdatacenter", "winNetEnterprise64Guest": "winnetenterprise",
		"winNetStandard64Guest": "winnetstandard", "winVista64Guest": "winvista", "winXPPro64Guest": "winxppro",
	}
	for name := range strings.FieldsSeq(strippedGuests) {
		stem := strings.TrimSuffix(strings.TrimSuffix(name, "64"), "_")
		table[name+"Guest"] = stem
	}
	for stem := range strings.FieldsSeq("win2000AdvServ win2000Pro win2000Serv winLonghorn winMe winNetBusiness winNetDatacenter " +
		"winNetEnterprise winNetStandard winNetWeb winNT winVista winXPHome winXPPro") {
		table[stem+"Guest"] = strings.ToLower(stem)
	}
	for version := 10; version <= 16; version++ {
		if version < 12 {
			table[fmt.Sprintf("darwin%dGuest", version)] = "darwin"
		}
		table[fmt.Sprintf("darwin%d_64Guest", version)] = "darwin"
	}
	for _, kernel := range []string{"other", "other24x", "other26x", "other3x"} {
		table[kernel+"LinuxGuest"], table[kernel+"Linux64Guest"] = "linux", "linux"
	}
	return table
}

// instanceType returns the type of a node in the form of vSphere's own controller.
func instanceType(m machine) string {
	guest, known := guestTable()[m.GuestID]
	if !known {
		guest = "unknown"
	}
	return fmt.Sprintf("vsphere-vm.cpu-%d.mem-%dgb.os-%s", m.CPUs, m.MemoryMB/1024, guest)
}
