"""Who may connect, and what they have to show.

credentials   what the processes of a job show each other: a token, and certificates with TLS
certificates  a certificate, its key and its authority: from files, or made for a job
making        makes them
contexts      TLS as Python's `ssl` wants it, for those who connect and those who accept
"""
