"""Who may connect, what they have to show, and how much they may send.

credentials   what the processes of a job show each other: a token, and certificates with TLS
certificates  a certificate, its key and its authority: from files, or made for a job
making        makes certificates
tokens        tokens for people, each for a role and for a time
ipc_sizes     how large an Arrow IPC stream becomes, before it is unpacked
contexts      TLS contexts of Python's `ssl`, for clients and servers
"""
