package controlplane

import "syscall"

// processAttributes: the kernel ends the child when its parent dies, so that a crashed test leaves nothing behind.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
