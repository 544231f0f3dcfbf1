"""How pieces get from one instance's process to another's: one socket per edge and pair.

connections   where a connection is made and accepted, with TLS if there is a certificate
epoch_frame   the frame of one small epoch, of a fixed form
frames        length-prefixed frames on a socket; large bodies are received in place
wire          what is in them: tickets, headers, and columns as the blocks they lie in
server        the producing side: cursors over the epoch logs, which replay and then follow
subscription  the consuming side: asks for a log from an epoch on, and asks again when a
              connection breaks
flow_control  how far a producer may be ahead, and what subscribers say of that
listener      accepts connections, and serves those that show the token of the run
lookups       queries of clients for rows of state, and their answers
claims        claims at the boundary register, on a connection to a keeper
inbox         where pieces come together for the thread that computes, which reads small ones
              itself
"""
